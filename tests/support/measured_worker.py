"""A real expert worker that says on stderr how large the largest messages were on its work connection.

A line `largest sent BYTES`, or `received`, comes for each new largest step message: others have numbers of any
length, and are small. Otherwise this is `expert_worker.main`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import expert_worker.main
from protocol.holder import process
from protocol.step_frames import MAGIC, Frame
from protocol.wire import Dialled


class MeasuredLine(Dialled):
    """A work connection that measures."""

    def __init__(self, endpoint: str, **settings: Any) -> None:
        super().__init__(endpoint, **settings)
        self._largest = {"sent": 0, "received": 0}

    def _send(self, frames: Sequence[Frame]) -> bool:
        self._measure("sent", frames)
        return super()._send(frames)

    def _receive(self, deadline: float) -> list[Frame] | None:
        frames = super()._receive(deadline)
        self._measure("received", frames or [])
        return frames

    def _measure(self, way: str, frames: Sequence[Frame]) -> None:
        if not frames or frames[0][0] != MAGIC:
            return
        size = sum(memoryview(frame).nbytes for frame in frames)
        if size > self._largest[way]:
            self._largest[way] = size
            sys.stderr.write(f"largest {way} {size}\n")


def largest_messages(log: Path) -> dict[str, int]:
    """Bytes of the largest message that the worker of this log has sent, and received, so far."""
    return {way: int(size) for way, size in re.findall(r"^largest (\w+) (\d+)$", log.read_text(), re.MULTILINE)}


if __name__ == "__main__":
    vars(process)["Dialled"] = MeasuredLine
    sys.exit(expert_worker.main.main())
