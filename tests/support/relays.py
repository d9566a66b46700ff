"""Relays as processes of their own, so that nothing else of a test delays what they relay."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(__file__).with_name("relay.py")
END_S = 10.0


class RelayProcess:
    """`relay.py`, told what to do. It ends when this process does."""

    def __init__(self, listen: int, target: int, *, host: str = "127.0.0.1", inside: Sequence[str] = ()) -> None:
        """Relays HOST:LISTEN to HOST:TARGET; `inside` is put before the command, as `ip netns exec NAME` is."""
        self._process = subprocess.Popen(
            [*inside, sys.executable, "-P", str(SCRIPT), f"{host}:{listen}", f"{host}:{target}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._confirm("start")

    def say(self, command: str) -> None:
        """Have it done, as `relay.py` tells; done when this returns."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        self._confirm(command)

    def _confirm(self, command: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said == "ok\n", f"the relay ended at {command!r}"

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class BadLink:
    """The way from some workers to a coordinator: relays for control and work, told the same."""

    def __init__(self, near: int, target: int) -> None:
        """From the ports `near` and the next one to `target` and the next one, all of 127.0.0.1."""
        self.target = f"tcp://127.0.0.1:{target}"
        """Where the coordinator listens."""
        self.endpoint = f"tcp://127.0.0.1:{near}"
        """Where a worker behind it dials."""
        self._near, self._target = near, target
        self._relays = [RelayProcess(near + number, target + number) for number in (0, 1)]

    @property
    def routes(self) -> dict[str, str]:
        """What `far_worker` needs to know, as its environment: the coordinator tells everybody its own ports."""
        pairs = (f"127.0.0.1:{self._target + number}=127.0.0.1:{self._near + number}" for number in (0, 1))
        return {"EXPERTMESH_TEST_ROUTES": " ".join(pairs)}

    def say(self, command: str) -> None:
        """Both do it."""
        for relay in self._relays:
            relay.say(command)

    def close(self) -> None:
        """End both."""
        for relay in self._relays:
            relay.close()


@contextmanager
def bad_link(near: int, target: int) -> Iterator[BadLink]:
    """One that ends with the block."""
    link = BadLink(near, target)
    try:
        yield link
    finally:
        link.close()
