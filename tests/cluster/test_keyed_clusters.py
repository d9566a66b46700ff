"""Clusters with keys: the same bits, nobody else comes in, a key can be taken back, and no secret is seen."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from clusters import FORGIVING, PATIENT, LiveCluster, Then, in_force, live_cluster, worker_of
from command_line import COMMAND, environment, wait_until
from free_ports import four_ports
from key_folders import key_folder, secrets_of, stranger_of, take_back
from own_network import ADDRESS, own_network
from reference_answer import Reference

from coordinator.client import Client
from coordinator.config import inputs_endpoint, work_endpoint
from coordinator.demo import demo_model as demo_file
from protocol.errors import ConfigError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def keyed(folder: Path, *names: str) -> dict[str, Any]:
    """Settings of a cluster on TCP with keys of its own."""
    keys = key_folder(folder / "keys", *names)
    return {"keys": keys, "listen": f"tcp://127.0.0.1:{four_ports()}", "coordinator_options": PATIENT}


def start_with_key(cluster: LiveCluster, number: int, key: Path, model: Path) -> None:
    """A worker more, with a key of its own."""
    name = f"worker-{number}"
    options = ["--connect", cluster.endpoint, "--model", str(model), "--name", name, "--keys", str(key)]
    cluster.workers.append(cluster.start(name, "expert_worker.main", options))


def test_the_same_bits_and_a_key_that_is_taken_back_in_the_middle(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    settings = keyed(tmp_path, "garage")
    with live_cluster(demo_model, tmp_path, workers=1, **settings) as cluster:
        start_with_key(cluster, 1, settings["keys"] / "garage.key", demo_model)
        cluster.ready()
        script = [
            Then(20, lambda: take_back(settings["keys"], "garage")),
            Then(lambda report: worker_of(report, "worker-1")["state"] in ("gone", "lost"), lambda: None),
        ]
        answer = cluster.answer(prompt, 1900, script=script)
        reference.check(answer)
        assert cluster.workers[1].wait(40) == 2  # ten seconds later at most it dials anew, and is told
        assert "does not let in the key of" in (tmp_path / "worker-1.log").read_text()
        report = cluster.status()
        assert in_force(report) == 1
        assert worker_of(report, "worker-0")["state"] == "ready"


def test_a_coordinator_that_is_started_again_finds_its_workers_and_they_it(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=2, **keyed(tmp_path)) as cluster:
        reference.check(cluster.answer(prompt, 20))
        cluster.coordinator.kill()
        cluster.restart_coordinator()
        cluster.ready()
        reference.check(cluster.answer(prompt, 20))
        assert [worker.exit_code() for worker in cluster.workers] == [None, None]


def test_lookahead_processes_have_keys_too(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    settings = keyed(tmp_path)
    with live_cluster(demo_model, tmp_path, workers=1, **settings) as cluster:
        options = ["--connect", cluster.endpoint, "--model", str(demo_model), "--name", "ahead"]
        cluster.start("ahead", "expert_worker.lookahead.main", [*options, "--keys", str(settings["keys"])])
        cluster.wait_for(lambda report: len(report["lookahead"]) == 1)
        script = [Then(lambda report: report["lookahead"][0]["inputs"] > 100, lambda: None)]
        reference.check(cluster.answer(prompt, 1900, script=script))


def test_no_secret_is_in_logs_arguments_or_status(demo_model: Path, tmp_path: Path) -> None:
    settings = keyed(tmp_path, "garage")
    settings["coordinator_options"] = ["--log", "debug"]
    with live_cluster(demo_model, tmp_path, workers=2, worker_options=["--log", "debug"], **settings) as cluster:
        status = json.dumps(cluster.status())
        pids = [cluster.coordinator.pid, *(worker.pid for worker in cluster.workers)]
        arguments = "".join(part for pid in pids for part in psutil.Process(pid).cmdline())
        environments = "".join(value for pid in pids for value in psutil.Process(pid).environ().values())
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "key client comes in" in logs
    for secret in secrets_of(settings["keys"]):
        assert not [place for place in (status, arguments, environments, logs) if secret in place]


def test_strangers_and_floods_on_every_port_change_no_bit_and_take_no_memory(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    """Connections that say nothing, noise, and handshakes with a key that is not allowed, all during one answer."""
    settings = keyed(tmp_path) | {"coordinator_options": FORGIVING}
    stranger = stranger_of(settings["keys"], tmp_path / "other")
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster, ExitStack() as stack:
        control = cluster.endpoint
        ports = [int(one.rpartition(":")[2]) for one in (control, work_endpoint(control), inputs_endpoint(control))]
        resident = psutil.Process(cluster.coordinator.pid).memory_info
        before = resident().rss
        done = threading.Event()
        stack.callback(done.set)

        def connect() -> None:
            for port in ports:
                for said in (b"", os.urandom(4096), b"\xff" + b"\0" * 8):
                    for _ in range(40):
                        one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                        one.sendall(said)

        def knock() -> None:
            while not done.is_set():
                with Client(control, keys=stranger) as client, pytest.raises(ConfigError, match="does not let in"):
                    client.greet(20.0)

        knocking = threading.Thread(target=knock, daemon=True)
        script = [
            Then(5, connect),
            Then(10, knocking.start),
            Then(300, lambda: None),
        ]
        answer = cluster.answer(prompt, 1900, script=script)
        done.set()
        knocking.join(30)
        assert not knocking.is_alive()
        reference.check(answer)
        assert [worker["state"] for worker in answer.report["workers"]] == ["ready", "ready"]
        assert resident().rss - before < 64 << 20


def test_a_cluster_that_listens_to_other_machines(tmp_path: Path) -> None:
    """In a network of its own, from the command line."""
    keys = key_folder(tmp_path / "keys", "garage")
    config = tmp_path / "cluster.toml"
    config.write_text(
        f'[model]\npath = "{demo_file()}"\n[coordinator]\nlisten = "tcp://0.0.0.0:7600"\nthreads = 1\n'
        '[keys]\npath = "keys"\n[[workers]]\nname = "here"\n'
    )
    there = f"tcp://{ADDRESS}:7600"
    with own_network() as inside, ExitStack() as stack:

        def start(*arguments: object) -> subprocess.Popen[str]:
            log = stack.enter_context((tmp_path / f"{arguments[0]}.log").open("w"))
            command = [*inside, *COMMAND, *map(str, arguments)]
            process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        def ask(*arguments: object) -> subprocess.CompletedProcess[str]:
            command = [*inside, *COMMAND, *map(str, arguments)]
            return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)

        def ready(workers: int) -> bool:
            done = ask("status", there, "--keys", keys / "garage.key", "--json")
            return done.returncode == 0 and in_force(json.loads(done.stdout)) == workers

        up = start("up", config)
        assert wait_until(lambda: ready(1), 60.0), (tmp_path / "up.log").read_text()
        far = start(
            "worker", "--connect", there, "--keys", keys / "garage.key", "--model", demo_file(), "--name", "far"
        )
        assert wait_until(lambda: ready(2), 60.0), (tmp_path / "worker.log").read_text()
        answered = ask("generate", "--config", config, "--json", "--max-tokens", 8, "In the beginning God created")
        report = json.loads(answered.stdout)
        assert report["text"] == " and all the days of his life,"
        assert {worker["name"]: worker["calls"] > 0 for worker in report["workers"]} == {"here-0": True, "far": True}
        planned = ask("plan", there, "--keys", keys / "garage.key")
        assert (planned.returncode, planned.stderr) == (0, "")
        for command in ("status", "plan"):
            assert "another address needs keys" in ask(command, there).stderr.lower()
        refused = ask("worker", "--connect", there, "--keys", key_folder(tmp_path / "other"), "--model", demo_file())
        assert refused.returncode == 2
        assert re.search(r"error: whoever listens at .* breaks off every greeting", refused.stderr)
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
        assert far.wait(30) == 0


def test_without_keys_nothing_listens_to_other_machines(tmp_path: Path) -> None:
    options = ["--model", str(demo_file()), "--listen", "tcp://0.0.0.0:7600"]
    command = [sys.executable, "-P", "-m", "coordinator.main", *options]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Another address needs keys" in done.stderr
    assert "expertmesh keys new FOLDER" in done.stderr
