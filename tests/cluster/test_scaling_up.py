"""`expertmesh scale` and `down`: workers come and go while answers stream, what fails is undone, nothing is left."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from command_line import COMMAND, processes_of, run, start, wait_until
from running_up import ask, private_copy, up
from ssh_clusters import cluster_file
from ssh_server import needs_sshd, ssh_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_workers_come_and_go_while_an_answer_streams(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    question = ("generate", "--json", "--ignore-eos", "--max-tokens", 600, "In the beginning")
    quiet = run(*question).stdout
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker holds experts")
        asking = start(
            "generate", "--config", config, "--json", "--ignore-eos", "--max-tokens", 600, "In the beginning"
        )
        grown = run("scale", "--config", config, "box=3")
        assert (grown.returncode, grown.stderr) == (0, "")
        assert grown.stdout == "the number of workers changes: box 3\nthere are 3 box now\n"
        cluster.line(r"ready: 3 workers hold experts")
        assert run("scale", "--config", config, "box=2").returncode == 0
        assert run("scale", "--config", config, "box=3").returncode == 0, "box-2 comes a second time"
        shrunk = run("scale", "--config", config, "box=1")
        assert (shrunk.returncode, shrunk.stderr) == (0, "")
        cluster.line(r"box-\d \(process \d+\) has left")
        cluster.line("there are 1 box now")
        workers = processes_of(endpoint, "expert_worker.main")
        assert len(workers) == 1
        output, errors = asking.communicate(timeout=120)
        assert asking.returncode == 0, errors
        digest = r'"sha256_logits": "(\w+)"'
        assert re.findall(digest, output) == re.findall(digest, quiet)
        down = run("down", "--config", config)
        assert (down.returncode, down.stdout, down.stderr) == (0, "", "")
        assert {one.pid for one in processes_of(endpoint)} <= {cluster.process.pid}
        cluster.line("stopped by `expertmesh down`")
        assert cluster.process.wait(30) == 0


def test_a_coordinator_that_is_started_again_waits_for_those_that_there_are_then(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    with up(config, endpoint, "--scale", "box=2") as cluster:
        cluster.line("ready: 2 workers hold experts")
        assert run("scale", "--config", config, "box=1").returncode == 0
        (coordinator,) = processes_of(endpoint, "coordinator.main")
        coordinator.kill()
        cluster.line(r"coordinator started again \(process \d+\)")
        cluster.line("placement .* in force: 1 worker;")
        assert ask(config)["workers"][0]["name"] == "box-0"


@needs_sshd
def test_newcomers_that_cannot_be_are_undone(tmp_path: Path) -> None:
    command = tmp_path / "expertmesh"
    with ssh_server(tmp_path / "ssh") as server:
        config, endpoint = cluster_file(tmp_path, server, {"command": str(command)})
        command.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
        command.chmod(0o755)
        with up(config, endpoint) as cluster:
            cluster.line("ready: 2 workers hold experts")
            command.write_text("#!/bin/sh\necho 'error: no room for another' >&2\nexit 2\n")
            failed = run("scale", "--config", config, "garage=3", "box=2", timeout=120.0)
            assert failed.returncode == 2
            assert re.fullmatch(
                r"error: garage-\d is of no use: it cannot run as it was asked to; there are 1 box, 1 garage again\n",
                failed.stderr,
            )
            assert wait_until(lambda: len(processes_of(endpoint, "expert_worker.main")) == 2, 20.0)
            assert {one["name"] for one in ask(config)["workers"] if one["experts"]} == {"box-0", "garage-0"}
            cluster.process.send_signal(signal.SIGINT)
            assert cluster.process.wait(30) == 0


def test_what_cannot_be_wished_for(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    nobody = f"error: no launcher is there for {endpoint}: is this cluster up, started here by `up`?\n"
    assert run("down", "--config", config).stderr == nobody
    assert run("scale", "--config", config, "box=2").stderr == nobody
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker holds experts")
        for counts, said in {
            "other=1": "no group of workers is called other; there are box",
            "box=65": "NAME=COUNT is box=65, expected NAME=COUNT, from 0 to 64",
            "box": "NAME=COUNT is box, expected NAME=COUNT, from 0 to 64",
        }.items():
            done = run("scale", "--config", config, counts)
            assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said}\n")
