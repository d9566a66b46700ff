"""`expertmesh up` with every ready file: ask it, kill a worker and the coordinator, stop it, look what is left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from command_line import processes_of, run, start, wait_until
from free_ports import four_ports
from running_up import CONFIGS, ask, private_copy, up

from coordinator.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

RESTARTED_S = 30.0
"""From the end of a coordinator to an answer, on a busy machine, where the command that asks takes seconds itself."""


@pytest.mark.parametrize(("name", "workers"), [("local-1.toml", 1), ("local-2.toml", 2), ("local-4.toml", 4)])
def test_a_ready_file_starts_answers_and_stops(tmp_path: Path, name: str, workers: int) -> None:
    config, endpoint = private_copy(name, tmp_path)
    with up(config, endpoint) as cluster:
        cluster.line(rf"ready: {workers} workers? holds? experts")
        started = {process.pid for process in processes_of(endpoint)}
        report = ask(config)
        assert report["text"] == " and all the days of his life,"
        assert len(report["workers"]) == workers
        assert {worker["pid"] for worker in report["workers"]} < started, "the running cluster was to answer"
        cluster.process.send_signal(signal.SIGINT)
        cluster.line("stopped by SIGINT")
        assert cluster.process.wait(30) == 0


def test_what_ends_is_started_again(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-2.toml", tmp_path)
    with up(config, endpoint) as cluster:
        cluster.line("ready: 2 workers hold experts")
        before = ask(config)
        psutil.Process(before["workers"][1]["pid"]).kill()
        cluster.line(r"box-1 \(process \d+\) was ended by SIGKILL")
        cluster.line(r"box-1 started again \(process \d+\)")
        cluster.line("placement .* in force: 2 workers")
        (coordinator,) = processes_of(endpoint, "coordinator.main")
        coordinator.kill()
        killed = time.monotonic()
        cluster.line(r"coordinator \(process \d+\) was ended by SIGKILL")
        again = psutil.Process(int(cluster.line(r"coordinator started again \(process (\d+)\)")[1]))
        assert "--resume" in again.cmdline()
        cluster.line("placement .* in force: 2 workers")
        after = ask(config)
        assert time.monotonic() - killed < RESTARTED_S
        assert after["sha256_logits"] == before["sha256_logits"]
        assert after["workers"][0]["pid"] == before["workers"][0]["pid"], "a worker outlives its coordinator"
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(30) == 0


def test_a_lookahead_process_is_started_beside_workers_and_again_when_it_ends(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    with config.open("a") as file:
        file.write("\n[lookahead]\nenabled = true\n")
    with up(config, endpoint) as cluster:
        cluster.line("lookahead is on: as configured")
        cluster.line("ready: 1 worker holds experts")
        before = ask(config)
        (lookahead,) = processes_of(endpoint, "expert_worker.lookahead.main")
        lookahead.kill()
        cluster.line(r"lookahead \(process \d+\) was ended by SIGKILL")
        cluster.line(r"lookahead started again \(process \d+\)")
        assert ask(config)["sha256_logits"] == before["sha256_logits"]
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(30) == 0


def test_a_client_that_waits_learns_that_the_coordinator_was_lost(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker holds experts")
        asking = start("generate", "--config", config, "--max-tokens", 2000, "--ignore-eos", "In the beginning")
        assert asking.stdout is not None
        assert asking.stdout.read(10)
        (coordinator,) = processes_of(endpoint, "coordinator.main")
        coordinator.kill()
        _, errors = asking.communicate(timeout=60)
        assert asking.returncode == 2
        assert errors == "error: the coordinator has lost this request; was it started again?\n"


def test_stop_of_a_client_ends_it_all(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-2.toml", tmp_path)
    with up(config, endpoint) as cluster:
        cluster.line("ready: 2 workers hold experts")
        with Client(endpoint) as client:
            client.stop()
            cluster.line("stopped by a client")
        assert cluster.process.wait(30) == 0


def test_an_endpoint_in_use_is_refused(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker holds experts")
        for options in ((), ("--dry-run",)):
            done = run("up", config, *options)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == f"error: {endpoint} is in use already: is this cluster up?\n"


@pytest.mark.skipif(find_spec("cupy") is not None, reason="cupy is here")
def test_a_peer_that_cannot_run_is_not_waited_for(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    with config.open("a") as file:
        file.write('\n[[peers]]\nname = "gpu"\n')
    done = run("up", config)
    assert done.returncode == 2
    said = r"error: gpu \(process \d+\) exited with code 2: device cuda:0: it is used .*; it is not started again: "
    assert re.match(said, done.stderr)
    assert processes_of(endpoint) == []


def on_tcp(folder: Path) -> tuple[Path, str]:
    """A cluster of one worker at ports that were free a moment ago, and its endpoint."""
    config, _ = private_copy("local-1.toml", folder)
    endpoint = f"tcp://127.0.0.1:{four_ports()}"
    config.write_text(re.sub(r'listen = "[^"]*"', f'listen = "{endpoint}"', config.read_text()))
    return config, endpoint


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (0, "{control} is in use already: is this cluster up?"),
        (1, "{work}, which is needed beside {control}, is in use already: listen elsewhere"),
        (2, "{inputs}, which is needed beside {control}, is in use already: listen elsewhere"),
    ],
)
def test_a_port_that_something_else_has_is_named_before_anything_starts(
    tmp_path: Path, offset: int, error: str
) -> None:
    config, control = on_tcp(tmp_path)
    port = int(control.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port + offset)):
        done, dry = run("up", config), run("up", config, "--dry-run")
    work, inputs = (f"tcp://127.0.0.1:{port + more}" for more in (1, 2))
    said = error.format(control=control, work=work, inputs=inputs)
    for each in (done, dry):
        assert (each.returncode, each.stdout, each.stderr) == (2, "", f"error: {said}\n")
    assert processes_of(control) == []


def test_what_a_killed_run_leaves_is_in_nobodys_way(tmp_path: Path) -> None:
    """Its ports, its name among launchers, and clients that have not noticed."""
    config, endpoint = on_tcp(tmp_path)
    with up(config, endpoint) as cluster, Client(endpoint) as late:
        cluster.line("ready: 1 worker holds experts")
        before = ask(config)
        late.greet(10.0)
        cluster.process.kill()
        assert wait_until(lambda: not processes_of(endpoint), 10.0)
        with up(config, endpoint) as again:
            again.line("ready: 1 worker holds experts")
            assert ask(config)["sha256_logits"] == before["sha256_logits"]
            again.process.send_signal(signal.SIGINT)
            assert again.process.wait(30) == 0


def test_a_coordinator_that_is_frozen_is_told_of_in_seconds(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker holds experts")
        (coordinator,) = processes_of(endpoint, "coordinator.main")
        coordinator.suspend()
        done = run("generate", "--config", config, "x")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"error: no coordinator answers at {endpoint} within 5 s\n"
        coordinator.resume()
        assert ask(config)["text"] == " and all the days of his life,"


@pytest.mark.timeout(300)
def test_64_workers_start_answer_with_the_same_bits_and_end(tmp_path: Path) -> None:
    """Sixteen experts a layer, so most have a single one or two; on any number of cores, where some may be late."""
    alone = run("generate", "--json", "--max-tokens", 8, "In the beginning God created")
    marked = tmp_path / "many" / "demo-moe-q4_k_m.gguf"
    marked.parent.mkdir()
    marked.write_bytes((CONFIGS / marked.name).read_bytes())
    options = ["--model", marked, "--workers", 64, "--json", "--max-tokens", 8]
    many = run("generate", *options, "In the beginning God created", timeout=250.0)
    assert many.returncode == 0, many.stderr
    first, second = (json.loads(done.stdout) for done in (alone, many))
    assert second["sha256_logits"] == first["sha256_logits"]
    assert len(second["workers"]) == 64
    assert processes_of(str(marked)) == []


def test_a_second_up_at_any_moment_harms_nobody(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-2.toml", tmp_path)
    with up(config, endpoint) as cluster:
        cluster.line("starting a coordinator")  # which does not listen yet
        seconds = [start("up", config) for _ in range(3)]
        for second in seconds:
            output, errors = second.communicate(timeout=30)
            assert (second.returncode, output) == (2, "")
            assert errors == f"error: {endpoint} is in use already: is this cluster up?\n"
        cluster.line("ready: 2 workers hold experts")
        assert len(ask(config)["workers"]) == 2
        assert not any("ended" in line or "exited" in line for line in cluster.seen)


def test_answers_of_one_file_at_once_have_clusters_of_their_own(tmp_path: Path) -> None:
    config, _ = private_copy("local-1.toml", tmp_path)
    question = ("generate", "--config", config, "--json", "--max-tokens", "8", "In the beginning God created")
    running = [start(*question) for _ in range(3)]
    for process in running:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert json.loads(output)["text"] == " and all the days of his life,"


def test_a_model_that_changes_while_it_is_in_use_is_told_of_once(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    model = tmp_path / "cut.gguf"
    model.write_bytes((CONFIGS / "demo-moe-q4_k_m.gguf").read_bytes())
    config.write_text(re.sub(r'path = "[^"]*"', f'path = "{model}"', config.read_text()))
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker")
        os.truncate(model, 5_000_000)
        cluster.line(rf"error: model file {model} changed while in use: its size was \d+ bytes .* is 5000000 now")
        cluster.process.send_signal(signal.SIGINT)
        cluster.line("stopped by SIGINT")
        stamps = [re.findall(r"\d\d:\d\d:\d\d", line) for line in cluster.seen]
        assert all(len(stamp) == 1 for stamp in stamps), cluster.seen
        assert sum("changed while in use" in line for line in cluster.seen) == 1


def test_a_worker_by_hand_joins(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    model = CONFIGS / "demo-moe-q4_k_m.gguf"
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker holds experts")
        worker = start("worker", "--connect", endpoint, "--model", model, "--name", "by-hand", "--threads", 1)
        cluster.line(r"ready: 2 workers hold experts \(box-0 96, by-hand 96\)")
        report = ask(config)
        assert [one["name"] for one in report["workers"]] == ["box-0", "by-hand"]
        assert report["workers"][1]["pid"] == worker.pid
        assert report["text"] == " and all the days of his life,"
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(30) == 0
        _, errors = worker.communicate(timeout=30)
        assert worker.returncode == 0, errors


def test_what_processes_wrote_is_kept_and_can_be_followed(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    assert run("logs", "--config", config).stderr.startswith("error: there are no logs in ")
    with up(config, endpoint) as cluster:
        cluster.line(rf"logs are in .*{endpoint[-16:]}")
        cluster.line("ready: 1 worker holds experts")
        worker = ask(config)["workers"][0]["pid"]
        following = start("logs", "--config", config, "-f", "-n", 1, "launcher", "box-0")
        assert following.stdout is not None
        assert {following.stdout.readline().split(": ")[0] for _ in range(2)} == {"launcher", "box-0"}  # from now on
        psutil.Process(worker).kill()
        assert re.match(rf"launcher: .* box-0 \(process {worker}\) was ended by SIGKILL\n", following.stdout.readline())
        following.terminate()
        assert following.wait(20) == 0
        cluster.line("placement .* in force: 1 worker")
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(30) == 0
    lines = run("logs", "--config", config, "-n", 1000).stdout.splitlines()
    assert {line.split(": ")[0] for line in lines} == {"launcher", "coordinator", "box-0"}
    assert sum(line.startswith("box-0: ") and "dialling" in line for line in lines) == 2, "of both lives"
    assert lines[-1].endswith("stopped by SIGINT")
    assert run("logs", "--config", config, "box-1").stderr.endswith(
        " has no log of box-1; it has those of launcher, box-0, coordinator\n"
    )
