"""One process on a machine to which its launcher has only a stream: what `expertmesh hosted run` does, over ssh.

The stream is stdin. Each line on it is the name of a signal for the process; its end is the end of the process, however
the launcher ended. So nothing is left on a machine whose launcher is gone, be it killed or cut off.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence

from coordinator.cores import CoreLeases, usable_cores

FORWARDED = {
    name.encode(): getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "KILL", "STOP", "CONT", "USR1")
}
"""Lines that are understood; others are ignored."""
ENDING = frozenset({b"TERM", b"INT", b"HUP", b"KILL"})
"""Those that end whoever just holds on."""
LEAVE_S = 5.0
"""Time for the process to end after SIGTERM, once the stream has ended."""
KILL_S = 5.0
"""Time for the kernel to end it after SIGKILL."""
MAX_LINE = 64
STDIN = 0


def run_hosted(command: Sequence[str], cores: int) -> int:
    """Run `command` until it ends, or stdin does; returns its exit code, 128 and more for a signal.

    It gets `cores` cores that no other launcher of this machine has, if there are so many. Whatever ends this process,
    the child, told its parent by `--parent`, ends too. Only for the main thread.
    """
    with CoreLeases() as leases:
        child = subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(OSError):
                if bound := leases.take(cores, usable_cores()):
                    os.sched_setaffinity(child.pid, bound)
            _follow(child)
        finally:
            _end(child)
        code = child.returncode
    return 128 - code if code < 0 else code


def hold() -> int:
    """Do nothing until stdin ends, or has a line that would end a process: what a tunnel is kept open by."""
    lines = _Lines()
    while (names := lines.read()) is not None and not ENDING.intersection(names):
        pass
    return 0


def _follow(child: subprocess.Popen[bytes]) -> None:
    """Returns when the child has ended, or nobody is at the other end of stdin any more."""
    ended, lines = os.pidfd_open(child.pid), _Lines()
    try:
        watched = select.poll()
        watched.register(STDIN, select.POLLIN)
        watched.register(ended, select.POLLIN)
        while ended not in (ready := [file for file, _ in watched.poll()]):
            if STDIN not in ready:
                continue
            if (names := lines.read()) is None:
                return
            for name in names:
                if name in FORWARDED:
                    child.send_signal(FORWARDED[name])
    finally:
        os.close(ended)


class _Lines:
    """What comes on stdin, in whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """Wait for something; the lines that are whole by then, or None at its end."""
        said = os.read(STDIN, 4096)
        if not said:
            return None
        *lines, rest = (self._rest + said).split(b"\n")
        self._rest = rest[:MAX_LINE]
        return lines


def _end(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL; a stopped process takes SIGTERM only when it goes on."""
    for number, within_s in ((signal.SIGTERM, LEAVE_S), (signal.SIGKILL, KILL_S)):
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(within_s)
            return
