"""A network of its own for processes of a test: with an address that is not loopback, and reaches nobody else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from command_line import wait_until

ADDRESS = "198.18.0.1"
"""Of a range that is for tests of networks."""


@contextmanager
def own_network() -> Iterator[list[str]]:
    """What to put in front of a command that is to run there. Skips the test where none can be made."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stderr=subprocess.DEVNULL)
    try:
        if not wait_until(lambda: holder.poll() is not None or _is_elsewhere(holder.pid), 10.0) or holder.poll():
            pytest.skip("no network can be made here")
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        for command in (f"ip address add {ADDRESS}/32 dev lo", "ip link set lo up"):
            done = subprocess.run([*inside, *command.split()], capture_output=True, text=True, timeout=10)
            if done.returncode:
                pytest.skip(f"no network can be set up here: {done.stderr.strip()}")
        yield inside
    finally:
        holder.kill()
        holder.wait()


def _is_elsewhere(pid: int) -> bool:
    """Whether it has a network of its own by now: before that, what is meant for its network would change ours."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    return False
