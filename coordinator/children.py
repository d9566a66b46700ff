"""One child process of the launcher: started in a session of its own, its stderr kept, its exit noticed.

A process on another machine is a child too: the ssh that runs it there. Its signals are lines on stdin, and when stdin
ends, with the launcher or its connection, so does the process (hosted.py).

Children ask the kernel themselves to be killed when their parent dies (`--parent`). The kernel means the parent's
*thread*, so only a thread that lives as long as the program may start them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from coordinator.launch_plan import ProcessPlan

KEPT_LINES = 50
"""Lines of a child's stderr that are kept, the last ones: enough for any traceback worth showing."""

OnLine = Callable[[str, str], None]
"""Takes a child's name and one line of its stderr; called from the child's reader thread."""


def ignore_line(name: str, line: str) -> None:
    """Nobody wants to see lines as they come."""


class Child:
    """A running, or ended, child process."""

    def __init__(self, plan: ProcessPlan, on_line: OnLine = ignore_line) -> None:
        """Start it; OSError if that fails."""
        self.name = plan.name
        self.started_at = time.monotonic()
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._elsewhere = plan.host is not None
        self._process = subprocess.Popen(
            plan.command if self._elsewhere else [*plan.command, "--parent", str(os.getpid())],
            stdin=subprocess.PIPE if self._elsewhere else subprocess.DEVNULL,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that a terminal's Ctrl-C reaches the launcher alone
        )
        self._reader = threading.Thread(target=self._read_lines, name=f"stderr of {self.name}", daemon=True)
        self._reader.start()
        if plan.cores:
            # The interpreter is still starting: threads that it makes later inherit this.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self.pid, plan.cores)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal. Reaps it."""
        return self._process.poll()

    def wait(self, within_s: float) -> bool:
        """True if it has exited when the time is over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, within_s))
        return self.exit_code() is not None

    def last_words(self) -> str:
        """Its error line if it wrote one (without the word), else its last line; empty if it wrote nothing."""
        if self.exit_code() is not None:
            self._reader.join(timeout=1.0)
        lines = [line for line in list(self._lines) if line.strip()]
        told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (told or lines or [""])[-1]

    def tail(self, count: int) -> list[str]:
        """The last lines that it wrote."""
        self.last_words()  # all of them have come, if it has exited
        return list(self._lines)[-count:]

    def ended(self) -> str:
        """How it ended, for people: "exited with code 2: no such file"."""
        code = self.exit_code()
        if code is None:
            return "still runs"
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        tells_why = code > 0 or code == -signal.SIGABRT  # what it wrote before another signal has nothing to do with it
        words = self.last_words() if tells_why else ""
        return how + (f": {words}" if words else "")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs. SIGKILL cuts one off that is elsewhere, so that it is ended there."""
        if not self._elsewhere or number == signal.SIGKILL:
            self._process.send_signal(number)
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # its end is about to be noticed
            self._process.stdin.write(f"{number.name.removeprefix('SIG')}\n".encode())

    def _read_lines(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        with stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip()
                self._lines.append(line)
                self._on_line(self.name, line)


def wait_for_all(children: Iterable[Child], within_s: float) -> list[Child]:
    """Wait until all have exited; returns those that still run when the time is over."""
    deadline = time.monotonic() + within_s
    return [child for child in children if not child.wait(deadline - time.monotonic())]


def end_all(children: Sequence[Child], term_s: float, kill_s: float) -> list[Child]:
    """SIGTERM, and after `term_s` SIGKILL; returns those that even so did not exit within `kill_s`."""
    for number, within_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, kill_s)):
        children = wait_for_all(children, 0)
        for child in children:
            # A stopped process takes SIGTERM only when it goes on.
            child.send(number)
            child.send(signal.SIGCONT)
        children = wait_for_all(children, within_s)
    return list(children)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
