"""Workers placed by Ray, without Ray: what is asked of it, and what becomes of workers whose nodes are lost."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, processes_of, run
from free_ports import four_ports
from running_up import private_copy

from coordinator.config import ClusterConfig, CoordinatorConfig, WorkerGroup
from coordinator.host_report import Expected
from coordinator.launch_plan import resolve
from coordinator.on_ray.children import LOST, RayWorkers
from coordinator.on_ray.holder import Holder, News
from coordinator.on_ray.main import main
from coordinator.on_ray.nodes import Told, models_of, wrong_with
from coordinator.on_ray.plan import RAY, RayWorker, dialled, placed_by_ray, why_not_placed
from coordinator.restarts import RestartPolicy
from coordinator.supervisor import Supervisor
from protocol.errors import ConfigError

LISTEN = "tcp://127.0.0.1:7600"
WORKER = RayWorker(name="box-0", threads=2, arguments=("-m", "x", "--connect", LISTEN))


def config(count: int) -> ClusterConfig:
    return ClusterConfig(
        model=ROOT / "m.gguf",
        coordinator=CoordinatorConfig(listen=LISTEN),
        workers=(WorkerGroup(name="box", count=count, threads=2),),
    )


def test_a_plan_has_one_process_that_asks_for_all_workers() -> None:
    plan = resolve(config(2), python="py", cores=())
    placed = placed_by_ray(plan, "auto")
    assert [process.name for process in placed.processes] == ["coordinator", RAY]
    assert placed.processes[0] == plan.processes[0]
    command = placed.processes[1].command
    texts = [command[at + 1] for at, word in enumerate(command) if word == "--worker"]
    workers = [RayWorker.from_json(text) for text in texts]
    assert [(worker.name, worker.threads) for worker in workers] == [("box-0", 2), ("box-1", 2)]
    for worker, before in zip(workers, plan.processes[1:], strict=True):
        assert ("py", *worker.arguments, "--of", "2/2") == before.command
        assert RayWorker.from_json(worker.to_json()) == worker


def test_without_workers_there_is_nothing_to_place() -> None:
    with pytest.raises(ConfigError, match="no workers to be placed by Ray"):
        placed_by_ray(resolve(config(0), python="py", cores=()), "auto")


@pytest.mark.parametrize(
    ("listen", "nodes", "connect"),
    [
        (LISTEN, ["10.0.0.1"], LISTEN),
        ("tcp://0.0.0.0:7600", ["10.0.0.1"], LISTEN),  # as the plan has it
        ("tcp://0.0.0.0:7600", ["10.0.0.1", "10.0.0.2"], "tcp://10.0.0.1:7600"),
        ("tcp://10.0.0.1:7600", ["10.0.0.1", "10.0.0.2"], LISTEN),
    ],
)
def test_workers_dial_what_their_nodes_reach(listen: str, nodes: list[str], connect: str) -> None:
    assert dialled(WORKER, listen, "10.0.0.1", nodes).arguments[-1] == connect


@pytest.mark.parametrize("listen", [LISTEN, "ipc://@x", "tcp://localhost:7600", "tcp://[::1]:7600"])
def test_what_other_machines_cannot_reach_is_told(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"nodes on other machines \(10\.0\.0\.2\), which cannot dial"):
        dialled(WORKER, listen, "10.0.0.1", ["10.0.0.2", "10.0.0.1"])


@pytest.mark.parametrize(
    ("processors", "reason"),
    [
        ({"a": 2.0, "b": 2.0}, ""),
        ({"a": 4.0}, ""),
        ({"a": 1.0, "b": 1.0}, "box-0 has 2 threads, and no node of Ray more than 1 CPUs"),
        ({}, "box-0 has 2 threads, and no node of Ray more than 0 CPUs"),
        ({"a": 2.0}, "all workers have 4 threads, and all nodes of Ray 2 CPUs"),
    ],
)
def test_what_ray_would_wait_for_is_told(processors: dict[str, float], reason: str) -> None:
    assert why_not_placed([WORKER, WORKER], processors) == reason


@dataclass
class FakeActors:
    """Actors that answer what a test says; a reason instead of an answer means that they are lost."""

    news: list[News | str | None] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    started: int = 0

    def start(self, worker: RayWorker) -> int:
        self.started += 1
        return self.started

    def ask(self, actor: int, method: str, *arguments: object) -> str:
        self.asked.append(method)
        return method

    def answer(self, asked: str) -> Any:
        if asked == "whereabouts":
            return "node", 70 + self.started
        found = self.news.pop(0) if self.news else None
        if isinstance(found, str):
            raise LookupError(found)
        return found

    def kill(self, actor: int) -> None:
        self.killed.append(actor)


def test_lines_are_passed_on_and_an_error_is_what_it_ended_with() -> None:
    actors, said = FakeActors([(["INFO a"], None), None, (["error: no such model"], 2)]), list[tuple[str, str]]()
    [child] = RayWorkers([WORKER], actors, lambda *line: said.append(line)).children.values()
    assert [child.exit_code() for _ in range(3)] == [None, None, 2]
    assert said == [("box-0", "process 71 on node"), ("box-0", "INFO a"), ("box-0", "error: no such model")]
    assert child.ended() == "exited with code 2: no such model"
    assert child.tail(1) == ["error: no such model"]
    assert actors.killed == [1], "its node has room again"


def test_a_worker_whose_node_is_lost_is_started_again_elsewhere() -> None:
    actors = FakeActors(["its actor is lost: the node died"])
    workers = RayWorkers([WORKER], actors, lambda *line: None)
    now = [0.0]
    supervisor = Supervisor(workers, RestartPolicy(), lambda: now[0])
    assert supervisor.tick() == [f"box-0 (process 71) exited with code {LOST}: its actor is lost: the node died"]
    now[0] += 1.0
    assert supervisor.tick() == ["box-0 started again (process 0)"]
    assert workers.children["box-0"].exit_code() is None
    assert actors.started == 2


def test_who_does_not_leave_in_time_is_ended() -> None:
    actors = FakeActors()
    workers = RayWorkers([WORKER], actors, lambda *line: None)
    workers.stop(0.0, lambda: None)
    assert actors.asked[-1] == "send"
    assert actors.killed == [1]


# --- what runs on a node ------------------------------------------------------------------------------------------


def all_news(holder: Holder) -> tuple[list[str], int]:
    lines: list[str] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        told, code = holder.news(1.0)
        lines += told
        if code is not None:
            return lines, code
    raise AssertionError(f"it did not end: {lines}")


def test_a_holder_tells_all_lines_before_the_exit_code() -> None:
    holder = Holder(["-c", "import sys; [print(n, file=sys.stderr) for n in range(300)]; sys.exit(3)"])
    assert all_news(holder) == ([str(number) for number in range(300)], 3)
    assert holder.news(0.0) == ([], 3), "and again"


def test_a_holder_asks_its_worker_to_leave() -> None:
    holder = Holder(["-c", "import signal, sys; print(sys.argv[1], file=sys.stderr, flush=True); signal.pause()"])
    assert holder.news(30.0) == (["--parent"], None)
    assert holder.whereabouts()[1] > 1
    holder.send(signal.SIGTERM)
    assert all_news(holder)[1] == -signal.SIGTERM


# --- the command line ---------------------------------------------------------------------------------------------


def test_an_address_is_of_no_use_without_ray() -> None:
    done = run("up", ROOT / "configs" / "local-2.toml", "--ray-address", "x:1")
    assert (done.returncode, done.stderr) == (2, "error: --ray-address is of use with --engine ray only\n")


def test_a_dry_run_shows_what_ray_is_asked_for() -> None:
    done = run("up", ROOT / "configs" / "local-2.toml", "--engine", "ray", "--dry-run")
    assert done.returncode == 0
    assert "\nray: 0 threads on any core\n" in done.stdout
    assert "\nbox-0: " not in done.stdout


def test_a_node_is_judged_by_what_it_tells() -> None:
    own = {"fingerprint": "f" * 16}
    expected = Expected(version="1.2", protocol=7, model=own, word="")
    sound = {"version": "1.2", "protocol": 7, "models": {"/m": own}}
    told: dict[str, Told] = {
        "a": sound,
        "b": {**sound, "version": "1.1", "models": {"/m": {"error": "model file '/m' does not exist"}}},
        "c": "no answer within 45 s",
    }
    assert list(wrong_with(told, [Path("/m")], expected)) == [
        "node b of Ray: version of expertmesh is 1.1, expected 1.2",
        "node b of Ray: model file '/m' does not exist",
        "node c of Ray: no answer within 45 s",
    ]


def test_who_fetches_weights_needs_no_model_there() -> None:
    made = [replace(WORKER, arguments=("--model", "/m")), replace(WORKER, arguments=("--cache", "/c"))]
    assert models_of(made) == [Path("/m")]


def test_a_cluster_that_is_not_there_is_told_with_all_else(tmp_path: Path) -> None:
    """Before anything starts."""
    pytest.importorskip("ray", reason="Ray is not installed")
    config, endpoint = private_copy("local-1.toml", tmp_path)
    port = four_ports()
    text = re.sub(r'listen = "[^"]*"', f'listen = "tcp://127.0.0.1:{port}"', config.read_text())
    config.write_text(text + "ram_gib = 4000\n")  # of a node, whose memory is not this machine's
    with socket.create_server(("127.0.0.1", port + 1)):
        done = run("up", config, "--engine", "ray", "--ray-address", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(
        f"error: tcp://127.0.0.1:{port + 1}, which is needed beside tcp://127.0.0.1:{port}, is in use"
    )
    assert second.startswith("error: no Ray cluster can be joined at '127.0.0.1:1': [Errno 111] Connection refused")
    assert processes_of(endpoint) == []


def test_a_cluster_that_is_not_there_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    assert main(["--address", "127.0.0.1:1", "--listen", LISTEN, "--model", "m", "--worker", WORKER.to_json()]) == 2
    assert capsys.readouterr().err == (
        "error: no Ray cluster can be joined at '127.0.0.1:1': [Errno 111] Connection refused; "
        "`ray start --head` makes one\n"
    )


def test_without_ray_how_to_get_it_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["--address", "auto", "--listen", LISTEN, "--model", "m", "--worker", WORKER.to_json()]) == 2
    assert capsys.readouterr().err.endswith("pip install 'expertmesh[ray]'\n")
