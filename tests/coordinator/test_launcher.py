"""Starting and stopping whole sets of processes, with scripts in place of the roles."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import psutil
import pytest

from coordinator import launcher as launcher_module
from coordinator.children import Child
from coordinator.config import COORDINATOR, ClusterConfig, CoordinatorConfig
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import LaunchPlan, ProcessPlan
from coordinator.launcher import Launcher, launched
from coordinator.private_cluster import private_endpoint
from protocol.errors import ConfigError, ExpertmeshError
from protocol.wire import Bound

pytestmark = pytest.mark.timeout(60)

OBEDIENT_COORDINATOR = """
import signal, sys
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
print("ready", file=sys.stderr, flush=True)
signal.pause()
"""
PATIENCE_S = 60.0
SLEEPER = "import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause(); signal.pause()"


def plan_of(**scripts: str) -> LaunchPlan:
    """A plan of processes that run these scripts, the coordinator being one of them."""
    processes = tuple(
        ProcessPlan(name=name, command=(sys.executable, "-P", "-c", script), threads=1, cores=())
        for name, script in scripts.items()
    )
    return LaunchPlan(model=Path("none"), listen=private_endpoint(), processes=processes)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is waited for is waited for so long that no busy machine looks like it."""
    for name in ("ASKED_S", "TERM_S"):
        monkeypatch.setattr(launcher_module, name, PATIENCE_S)


@contextmanager
def ready(plan: LaunchPlan) -> Iterator[Launcher]:
    """A launcher whose coordinator has said that it is ready."""
    said: SimpleQueue[str] = SimpleQueue()
    with Launcher(plan, Interrupts(), lambda name, line: said.put(line)) as launcher:
        assert said.get(timeout=10) == "ready"
        yield launcher


def test_a_coordinator_that_is_asked_to_stop_ends_in_order() -> None:
    with ready(plan_of(coordinator=OBEDIENT_COORDINATOR)) as launcher:
        child = launcher.children[COORDINATOR]
        assert launcher.ended() == []
    assert child.exit_code() == 0


def test_a_coordinator_that_is_started_again_is_told_that_it_is_not_the_first() -> None:
    tells = "import sys; print(sys.argv[1:-2], file=sys.stderr, flush=True)"
    said: SimpleQueue[tuple[str, str]] = SimpleQueue()
    with Launcher(plan_of(coordinator=tells, worker=tells), Interrupts(), lambda *line: said.put(line)) as launcher:
        first = {said.get(timeout=10) for _ in range(2)}
        for name in ("coordinator", "worker"):
            launcher.start(name)
        again = {said.get(timeout=10) for _ in range(2)}
    assert first == {("coordinator", "[]"), ("worker", "[]")}
    assert again == {("coordinator", "['--resume']"), ("worker", "[]")}


def test_only_its_own_coordinator_is_asked_to_stop() -> None:
    """Whoever listens at the endpoint of the plan: this launcher's coordinator does not yet, and another one might."""
    plan = plan_of(coordinator=SLEEPER)
    with Bound(plan.listen) as other:
        with Launcher(plan, Interrupts()):
            pass
        assert other.receive(0.5) is None


def test_two_launchers_cannot_have_one_endpoint() -> None:
    config = ClusterConfig(model=Path("none"), coordinator=CoordinatorConfig(listen=private_endpoint()))
    with (
        launched(config, Interrupts()),  # whose coordinator has not listened so far
        pytest.raises(ConfigError, match="is in use already"),
        launched(config, Interrupts()),
    ):
        raise AssertionError("started")
    with launched(config, Interrupts()):
        pass


def test_workers_that_nobody_stops_are_ended() -> None:
    with ready(plan_of(coordinator=OBEDIENT_COORDINATOR, a=SLEEPER, b=SLEEPER)) as launcher:
        children = dict(launcher.children)
    assert children[COORDINATOR].exit_code() == 0
    assert children["a"].exit_code() == children["b"].exit_code() == -signal.SIGTERM


def test_without_a_coordinator_nobody_is_asked(patient: None) -> None:
    with Launcher(plan_of(coordinator="raise SystemExit(3)", a=SLEEPER), Interrupts()) as launcher:
        children = dict(launcher.children)
        assert children[COORDINATOR].wait(10.0)
        assert launcher.ended() == [children[COORDINATOR]]
        begun = time.monotonic()
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert children["a"].exit_code() == -signal.SIGTERM


def test_a_hurried_stop_waits_for_nobody(patient: None) -> None:
    interrupts = Interrupts()
    with interrupts.caught(), Launcher(plan_of(coordinator=DEAF, a=DEAF), interrupts) as launcher:
        children = dict(launcher.children)
        interrupts.stopping()
        os.kill(os.getpid(), signal.SIGINT)
        begun = time.monotonic()
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert all(child.exit_code() is not None for child in children.values())


def test_a_command_that_cannot_be_started_stops_the_others() -> None:
    plan = plan_of(coordinator=SLEEPER)
    bad = ProcessPlan(name="bad", command=("/nowhere/at/all",), threads=1, cores=())
    launcher = Launcher(
        LaunchPlan(model=plan.model, listen=plan.listen, processes=(*plan.processes, bad)), Interrupts()
    )
    with pytest.raises(ExpertmeshError, match=r"bad cannot be started: .*No such file"), launcher:
        pass
    assert launcher.children[COORDINATOR].exit_code() is not None


def test_a_role_can_be_started_again() -> None:
    with ready(plan_of(coordinator=OBEDIENT_COORDINATOR, a=SLEEPER)) as launcher:
        first = launcher.children["a"]
        first.send(signal.SIGKILL)
        assert first.wait(10.0)
        second = launcher.start("a")
        assert second.pid != first.pid
        assert launcher.ended() == []


LAUNCHER_PROGRAM = """
import os, signal, sys
from pathlib import Path
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import LaunchPlan, ProcessPlan
from coordinator.launcher import Launcher
child = '''
import signal, sys, native
if not native.die_with_parent(int(sys.argv[-1])):
    sys.exit(7)
print("bound to its parent", file=sys.stderr, flush=True)
signal.pause()
'''
command = (sys.executable, "-P", "-c", child)
processes = tuple(ProcessPlan(name=name, command=command, threads=1, cores=()) for name in ("coordinator", "a"))
plan = LaunchPlan(model=Path("none"), listen="ipc://@none", processes=processes)
# Each child's lines come in a thread of its own: a line is one write, so that they stay apart.
with Launcher(plan, Interrupts(), lambda name, line: os.write(1, f"{line}\\n".encode())) as launcher:
    os.write(1, (" ".join(str(child.pid) for child in launcher.children.values()) + "\\n").encode())
    signal.pause()
"""


def test_killing_the_launcher_kills_the_children() -> None:
    launcher = subprocess.Popen([sys.executable, "-P", "-c", LAUNCHER_PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert launcher.stdout is not None
        lines = [launcher.stdout.readline().strip() for _ in range(3)]
        assert lines.count("bound to its parent") == 2
        (pids,) = (line for line in lines if line != "bound to its parent")
        children = [psutil.Process(int(pid)) for pid in pids.split()]
        launcher.kill()
        _, alive = psutil.wait_procs(children, timeout=20)
        # A killed child whose new parent does not reap it stays as a zombie: it runs no more.
        assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    finally:
        launcher.kill()
        launcher.communicate()


def test_last_words_of_a_child_come_to_whoever_listens() -> None:
    heard: list[tuple[str, str]] = []
    plan = plan_of(coordinator="import sys; print('hello', file=sys.stderr)")
    with Launcher(plan, Interrupts(), lambda name, line: heard.append((name, line))) as launcher:
        child: Child = launcher.children[COORDINATOR]
        assert child.wait(10.0)
        assert child.last_words() == "hello"
    assert heard == [("coordinator", "hello")]
