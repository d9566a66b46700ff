"""What rich prints of an answer on stderr: notices, a bar while the prompt is read, the closing table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from coordinator.cli.wording import harmless


class AnswerConsole:
    """Stderr, a terminal or not."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._progress: Progress | None = None
        self._task = TaskID(0)

    @property
    def is_terminal(self) -> bool:
        """Whether a bar can be drawn."""
        return self._console.is_terminal

    def tell(self, notice: str) -> None:
        """A line that is not part of the answer."""
        self._console.print(Text(harmless(notice), style="yellow"), soft_wrap=True)

    def report(self, lines: Sequence[str], workers: Sequence[dict[str, Any]]) -> None:
        """The lines, and a table of the workers if there are any."""
        for line in lines:
            self._console.print(Text(harmless(line)), soft_wrap=True)
        if workers:
            self._console.print(_workers(workers))

    def draw_progress(self, done: int, total: int, pace: str) -> None:
        """The bar, from its first call until `end_progress`."""
        if self._progress is None:
            columns = (
                TextColumn("reading the prompt"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
            )
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._task = self._progress.add_task("", total=total)
        self._progress.update(self._task, completed=done, description=pace)
        self._progress.start()

    def end_progress(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _workers(workers: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("worker")
    for heading in ("process", "experts", "calls", "entries", "busy s", "wait s"):
        table.add_column(heading, justify="right")
    for worker in workers:
        counts = [worker[key] for key in ("name", "pid", "experts", "calls", "entries")]
        times = [f"{worker[key]:.2f}" for key in ("busy_s", "wait_s")]
        table.add_row(*(Text(harmless(cell)) for cell in (*counts, *times)))
    return table
