"""What the processes of one answer warn of, for the person who waits for it: each warning once, and not too many."""

from __future__ import annotations

import re
from queue import Empty, SimpleQueue

from coordinator.config import COORDINATOR

MOST = 8
"""Warnings that are shown."""
WIDTH = 300
"""Letters of one."""
_WARNING = re.compile(r"\S+ \S+ (?:WARNING|ERROR|CRITICAL) (.+)")
"""A line of a log that is one, as all our processes write them."""
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class HeardWarnings:
    """Lines go in from the threads that read them, warnings come out where there is time to show them.

    The coordinator's are left out: what it sees of a process that ended is told by who watches that process.
    """

    def __init__(self) -> None:
        self._said: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._heard: set[str] = set()

    def on_line(self, name: str, line: str) -> None:
        """A line that process `name` wrote to its log."""
        if name != COORDINATOR and (found := _WARNING.fullmatch(line)):
            self._said.put((name, found[1]))

    def news(self) -> list[str]:
        """Lines to be shown, `name: warning`; one that differs from another in numbers alone is not."""
        lines = []
        while len(self._heard) <= MOST:
            try:
                name, text = self._said.get_nowait()
            except Empty:
                break
            kind = _NUMBER.sub("", text)
            if kind not in self._heard:
                self._heard.add(kind)
                short = text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
                lines.append(f"{name}: {short}" if len(self._heard) <= MOST else "further warnings are not shown")
        return lines
