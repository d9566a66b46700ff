"""A process that uses a shared arena, told by lines what to do next: so tests decide who has come how far.

What a unit has to hold follows from its number, so that everybody can tell whether it does.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from expert_worker import shared_arena
from expert_worker.arena_layout import ArenaLayout
from expert_worker.shared_arena import Phase, SharedArena
from protocol.errors import ArenaError

ANSWER_WITHIN_S = 60.0


def content(number: int, size: int) -> np.ndarray:
    """What unit `number` has to hold."""
    return np.random.default_rng(number).integers(0, 256, size, np.uint8)


def load(arena: SharedArena, number: int) -> None:
    """Write it and mark it."""
    arena.unit_view(number)[:] = content(number, arena.layout.units[number][1])
    arena.mark(number)


def is_right(arena: SharedArena) -> bool:
    """Whether all units hold what they have to."""
    units = enumerate(arena.layout.units)
    return all(np.array_equal(arena.data(number), content(number, size)) for number, (_, size) in units)


class ArenaProcess:
    """A child with one arena; each method is an order, and returns the answer."""

    def __init__(self, folder: Path, layout: ArenaLayout) -> None:
        stated = {"fingerprint": layout.fingerprint, "units": layout.units, "folder": str(folder)}
        command = [sys.executable, "-P", __file__, json.dumps(stated)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self._child.pid

    def tell(self, order: str, *arguments: Any) -> None:
        """Say what to do, without waiting."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([order, *arguments]).encode() + b"\n")

    def answer(self) -> Any:
        """What it says to the oldest order without one; AssertionError if it does not within ANSWER_WITHIN_S."""
        assert self._child.stdout is not None
        until, line = time.monotonic() + ANSWER_WITHIN_S, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._child.stdout], [], [], until - time.monotonic())
            assert ready, f"no answer within {ANSWER_WITHIN_S} s"
            part = os.read(self._child.stdout.fileno(), 1 << 16)
            assert part, f"the process ended with {self._child.wait(ANSWER_WITHIN_S)}"
            line += part
        return json.loads(line)

    def ask(self, order: str, *arguments: Any) -> Any:
        """`tell` and `answer`."""
        self.tell(order, *arguments)
        return self.answer()

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has given up its locks."""
        self._child.kill()
        self._child.wait(ANSWER_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()


class _Child:
    """The orders that there are, from the child's side."""

    def __init__(self, folder: Path, layout: ArenaLayout) -> None:
        self._folder = folder
        self._layout = layout
        self._arena: SharedArena | None = None

    def ready(self) -> bool:
        """Everything is imported."""
        return True

    def open(self, reserve_step: int = 1 << 30) -> str:
        shared_arena.RESERVE_STEP = reserve_step
        self._arena = SharedArena.open(self._layout, self._folder)
        return self._arena.phase.name

    def poll(self) -> str:
        return self._opened().poll().name

    def wait(self) -> str:
        return self._opened().wait(ANSWER_WITHIN_S).name

    def load(self, count: int) -> list[int]:
        numbers = self._opened().missing()[:count]
        for number in numbers:
            load(self._opened(), number)
        return numbers

    def finish(self) -> None:
        self._opened().finish()

    def fail(self, reason: str) -> None:
        self._opened().fail(reason)

    def take_part(self) -> list[int]:
        """All of it, as a worker does; which units were loaded here."""
        self.open()
        if self.wait() != Phase.OWNER.name:
            return []
        loaded = self.load(len(self._layout.units))
        self.finish()
        return loaded

    def is_right(self) -> bool:
        return is_right(self._opened())

    def pages(self) -> str:
        return self._opened().pages

    def close(self) -> None:
        self._opened().close()

    def _opened(self) -> SharedArena:
        assert self._arena is not None
        return self._arena


def main(stated: dict[str, Any]) -> None:
    """Carry out orders until there are no more."""
    units = tuple((name, size) for name, size in stated["units"])
    child = _Child(Path(stated["folder"]), ArenaLayout(fingerprint=stated["fingerprint"], units=units))
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        carry_out: Callable[..., Any] = getattr(child, order)
        try:
            answer = carry_out(*arguments)
        except ArenaError as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
