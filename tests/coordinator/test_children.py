"""Child processes of a launcher, with scripts of a few lines as children."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from coordinator.children import Child, end_all, wait_for_all
from coordinator.launch_plan import ProcessPlan

pytestmark = pytest.mark.timeout(30)

SAY_AND_WAIT = """
import signal, sys
{setup}
print("ready", file=sys.stderr, flush=True)
while True:
    signal.pause()
"""

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python script as a child; what still runs at the end is killed."""
    children = []

    def start_script(
        script: str, cores: tuple[int, ...] = (), on_line: Callable[[str, str], None] | None = None
    ) -> Child:
        command = (sys.executable, "-P", "-c", script)
        plan = ProcessPlan(name="tiny", command=command, threads=1, cores=cores)
        child = Child(plan, on_line) if on_line else Child(plan)
        children.append(child)
        return child

    yield start_script
    assert end_all(children, 0.0, 5.0) == []


def ready(start: Start, setup: str = "", **settings: tuple[int, ...]) -> Child:
    """A child that has come as far as to say so, and waits for signals."""
    said: SimpleQueue[str] = SimpleQueue()
    child = start(SAY_AND_WAIT.format(setup=setup), on_line=lambda name, line: said.put(line), **settings)
    assert said.get(timeout=10) == "ready"
    return child


def test_its_parent_and_its_exit_code(start: Start) -> None:
    child = start("import sys; sys.exit(sys.argv[1:] != ['--parent', str(__import__('os').getppid())])")
    assert wait_for_all([child], 10.0) == []
    assert child.exit_code() == 0
    assert child.ended() == "exited with code 0"


def test_its_error_line_is_what_it_ended_with(start: Start) -> None:
    child = start("import sys; sys.exit(print('noise\\nerror: no such model\\n  detail', file=sys.stderr) or 2)")
    assert child.wait(10.0)
    assert child.last_words() == "no such model"
    assert child.ended() == "exited with code 2: no such model"


def test_without_an_error_line_the_last_one_is(start: Start) -> None:
    child = start("raise ValueError('surprise')")
    assert child.wait(10.0)
    assert child.ended() == "exited with code 1: ValueError: surprise"


def test_much_output_does_not_stop_it(start: Start) -> None:
    child = start("import sys; [print(i, 'x' * 200, file=sys.stderr) for i in range(5000)]; print('y' * 100000)")
    assert child.wait(20.0)
    assert child.exit_code() == 0
    assert child.last_words().startswith("4999 x")


def test_a_signal_is_named(start: Start) -> None:
    child = ready(start)
    child.send(signal.SIGKILL)
    assert child.wait(10.0)
    assert child.exit_code() == -signal.SIGKILL
    assert child.ended() == "was ended by SIGKILL"


def test_it_has_a_session_of_its_own_and_its_cores(start: Start) -> None:
    core = min(os.sched_getaffinity(0))
    child = ready(start, cores=(core,))
    assert os.getsid(child.pid) == child.pid
    assert os.sched_getaffinity(child.pid) == {core}
    assert child.exit_code() is None
    assert child.ended() == "still runs"


def test_waiting_ends_with_the_time(start: Start) -> None:
    child = ready(start)
    begun = time.monotonic()
    assert wait_for_all([child], 0.05) == [child]
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("setup", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_ending_ends_the_deaf_too(start: Start, setup: str) -> None:
    child = ready(start, setup)
    assert end_all([child], 0.2, 5.0) == []
    assert child.exit_code() == (-signal.SIGKILL if setup else -signal.SIGTERM)


def test_ending_ends_what_is_frozen(start: Start) -> None:
    child = ready(start)
    child.send(signal.SIGSTOP)
    assert end_all([child], 5.0, 5.0) == []
    assert child.exit_code() == -signal.SIGTERM


def test_ending_what_has_ended_is_nothing(start: Start) -> None:
    child = start("pass")
    assert child.wait(10.0)
    assert end_all([child], 0.0, 0.0) == []
    assert child.exit_code() == 0
