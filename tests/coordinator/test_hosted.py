"""A process that lives as long as a stream does, with scripts of a few lines as the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from command_line import environment, wait_until

pytestmark = pytest.mark.timeout(60)

PROGRAM = "import sys; from coordinator.hosted import run_hosted; sys.exit(run_hosted((sys.executable, '-c', {!r}), 0))"
SAY_AND_WAIT = """
import os, signal, sys, native
assert native.die_with_parent(int(sys.argv[-1]))
{setup}
os.write(2, f"{{os.getpid()}}\\n".encode())
while True:
    signal.pause()
"""
DEAF = "signal.signal(signal.SIGTERM, lambda *_: os.write(2, b'heard\\\\n'))"


@contextmanager
def hosted(setup: str = "") -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """The process that holds on to its stdin, and the one that it runs."""
    program = PROGRAM.format(SAY_AND_WAIT.format(setup=setup))
    with started(program) as process:
        assert process.stderr is not None
        yield process, psutil.Process(int(process.stderr.readline()))


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program with a stream in both directions."""
    command = [sys.executable, "-P", "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def is_gone(child: psutil.Process) -> bool:
    """Reaped, or a zombie that nobody here reaps."""
    return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_end_of_the_stream_ends_it() -> None:
    with hosted() as (process, child):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 128 + signal.SIGTERM
        assert is_gone(child)


@pytest.mark.parametrize("state", ["deaf", "frozen"])
def test_the_end_of_the_stream_ends_even_what_does_not_listen(state: str) -> None:
    with hosted(DEAF if state == "deaf" else "") as (process, child):
        if state == "frozen":
            child.suspend()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 128 + (signal.SIGKILL if state == "deaf" else signal.SIGTERM)
        assert is_gone(child)


def test_lines_are_signals_and_others_are_ignored() -> None:
    with hosted("signal.signal(signal.SIGUSR1, lambda *_: os.write(2, b'heard\\n'))") as (process, child):
        assert process.stdin is not None
        assert process.stderr is not None
        for part in ("nonsense\n" + "x" * 10_000 + "\n", "USR", "1\n"):
            process.stdin.write(part)
            process.stdin.flush()
        assert process.stderr.readline() == "heard\n"
        assert not is_gone(child)
        process.stdin.write("KILL\n")
        process.stdin.flush()
        assert process.wait(20) == 128 + signal.SIGKILL


def test_what_ends_by_itself_gives_its_exit_code() -> None:
    with started(PROGRAM.format("raise SystemExit(7)")) as process:
        assert process.wait(20) == 7


def test_killing_who_holds_the_stream_ends_it_too() -> None:
    with hosted() as (process, child):
        os.kill(process.pid, signal.SIGKILL)
        assert wait_until(lambda: is_gone(child), 20.0)
