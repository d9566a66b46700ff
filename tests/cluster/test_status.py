"""`expertmesh status` of real clusters: where experts came from, and workers whose beats claim what they like."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import PATIENT, LiveCluster, live_cluster, worker_of
from command_line import run
from message_examples import beat, hello
from reference_answer import Reference

from protocol.expert_sources import TIER_COUNTS
from protocol.fields import MAX_ITEMS
from protocol.messages import Welcome
from protocol.model import Model
from protocol.wire import Dialled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def told(cluster: LiveCluster, *options: str) -> str:
    """What the command prints of a cluster."""
    done = run("status", *options, cluster.endpoint)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def told_of_one_moment(cluster: LiveCluster, *names: str, within_s: float = 30.0) -> tuple[str, dict[str, Any]]:
    """The text and the JSON, between two of which no beat of these members told anything new."""
    deadline = time.monotonic() + within_s
    before = json.loads(told(cluster, "--json"))
    while time.monotonic() < deadline:
        text, after = told(cluster), json.loads(told(cluster, "--json"))
        if all(worker_of(before, name)["tiers"] == worker_of(after, name)["tiers"] for name in names):
            return text, after
        before = after
    raise AssertionError(f"counters of {names} never stood still for {within_s} s")


def row(text: str, heading: str, name: str) -> list[str]:
    """The words of a member's row, of the table with this heading among others."""
    table = next(part for part in text.split("\n\n") if f" {heading}" in part)
    return next(line for line in table.splitlines() if line.startswith(f"{name} ")).split()


def add_reader(cluster: LiveCluster, model: Path) -> None:
    """One worker more, whose slots have room for a few experts only."""
    options = ["--connect", cluster.endpoint, "--model", str(model), "--name", "reader"]
    source = ["--source", "direct", "--ram-gib", "0.0005"]
    cluster.workers.append(cluster.start("reader", "expert_worker.main", [*options, *source]))
    cluster.ready()


def test_it_tells_where_each_worker_s_experts_came_from(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"worker_options": ["--source", "copies"], "coordinator_options": PATIENT}
    with live_cluster(demo_model, tmp_path, workers=1, **settings) as cluster:
        add_reader(cluster, demo_model)
        reference.check(cluster.answer(prompt, 20))

        def has_beaten(report: dict[str, Any]) -> bool:
            tiers = [worker_of(report, name)["tiers"] for name in ("worker-0", "reader")]
            return bool(tiers[0].get("copy_hits") and tiers[1].get("file_reads"))

        cluster.wait_for(has_beaten)
        text, report = told_of_one_moment(cluster, "worker-0", "reader")
    assert text.splitlines()[0] == f"{demo_model.name} at {cluster.endpoint}"
    assert text.splitlines()[1].startswith("ready, placement ")
    copier, reader = (worker_of(report, name) for name in ("worker-0", "reader"))
    assert (copier["source"], reader["source"]) == ("copies", "direct")
    assert copier["tiers"]["copied_experts"] == copier["experts"] > 0
    assert row(text, "source", "worker-0")[1:4] == ["copies", str(copier["tiers"]["copy_hits"]), "(100%)"]
    assert row(text, "source", "reader")[1] == "direct"
    assert str(reader["tiers"]["file_reads"]) in row(text, "source", "reader")
    assert row(text, "locked", "worker-0")[1] == str(copier["experts"])
    assert set(reader["tiers"]) == set(TIER_COUNTS)


def test_a_worker_that_claims_thousands_of_counters_is_told_of_in_a_few(demo_model: Path, tmp_path: Path) -> None:
    claims = {f"\x1b[31m{number}": 2**63 - 1 for number in range(MAX_ITEMS - 2)} | {
        "file_reads": -5,
        "copy_hits": 2**63 - 1,
    }
    with (
        live_cluster(demo_model, tmp_path, workers=1) as cluster,
        Model.open(demo_model) as model,
        Dialled(cluster.endpoint) as line,
    ):
        line.send(hello(name="liar", fingerprint=model.fingerprint, geometry=model.geometry.handshake()))
        welcome = line.receive(10.0)
        assert isinstance(welcome, Welcome)
        line.send(
            beat(token=welcome.token, source="\x1b[2J" * 99, calls=-1, busy_us=-1, resident_bytes=-1, tiers=claims)
        )
        cluster.wait_for(lambda report: any(one["source"] == "unknown" for one in report["workers"]))
        text, report = told_of_one_moment(cluster, "liar")
    liar = worker_of(report, "liar")
    assert (liar["source"], liar["tiers"]) == ("unknown", {"file_reads": 0, "copy_hits": 2**63 - 1})
    assert liar["resident_bytes"] == 0
    assert "\x1b" not in text
    assert row(text, "source", "liar")[1:] == ["unknown", str(2**63 - 1), "(100%)", "0"]
