"""Everything that can be sent to all ports of a coordinator, during an answer: same bits, bounded memory."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from clusters import FORGIVING, Then, in_force, live_cluster
from footprint import memory_of
from free_ports import four_ports
from hostile import FOR_S, KINDS, Attack
from reference_answer import Reference

MOST_MORE = 96 << 20
"""Bytes that a coordinator may have more than before: what is announced is a thousand times that."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(FOR_S * 3 + 180)]


def listening_ports(pid: int) -> set[int]:
    return {one.laddr.port for one in psutil.Process(pid).net_connections() if one.status == psutil.CONN_LISTEN}


def test_hostile_bytes_on_every_port_change_nothing_and_take_no_memory(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    port = four_ports()
    settings = {"coordinator_options": FORGIVING, "listen": f"tcp://127.0.0.1:{port}"}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster, ExitStack() as stack:
        pid = cluster.coordinator.pid
        ports = listening_ports(pid)
        assert ports >= {port, port + 1, port + 2}
        reference.check(cluster.answer(prompt, 100))
        before, most, answers = memory_of(pid).anonymous, 0, 0
        attacks = [stack.enter_context(Attack(one, seed)) for seed, one in enumerate(sorted(ports))]
        until = time.monotonic() + FOR_S
        while time.monotonic() < until or not all(all(attack.done.values()) for attack in attacks):
            reference.check(cluster.answer(prompt, 60))
            most, answers = max(most, memory_of(pid).anonymous), answers + 1
        # one answer from before the end of the attack until it is over
        script = [Then(5, stack.close), Then(lambda report: report["dropped"] > 0)]
        answer = cluster.answer(prompt, 400, script=script)
        reference.check(answer)
        assert answer.report["local_entries"] == 0
        assert most - before < MOST_MORE, (before, most)
        assert in_force(cluster.status()) == 2
        assert answers > 0
        assert all(attack.done[kind] for attack in attacks for kind in KINDS)
        cluster.wait_for(lambda report: psutil.Process(pid).num_fds() < 100)  # what was opened is closed
