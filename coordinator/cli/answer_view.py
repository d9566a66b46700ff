"""How an answer looks: its text on stdout as it comes; progress, notices and the closing table on stderr."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

LONG_PROMPT = 64
"""Prompt tokens from which progress is worth showing."""


class AnswerView:
    """A listener (coordinator.answering.Listener) for people; without `show_text` the text is not printed."""

    def __init__(self, *, show_text: bool) -> None:
        self._show_text = show_text
        self._console = Console(stderr=True, highlight=False)
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> AnswerView:
        return self

    def __exit__(self, *error: object) -> None:
        self._end_progress()

    def tell(self, notice: str) -> None:
        """A line that is not part of the answer."""
        self._console.print(notice, style="yellow", markup=False, soft_wrap=True)

    def prefilled(self, done: int, total: int) -> None:
        """A bar for long prompts, on a terminal."""
        if self._progress is None and self._console.is_terminal and total >= LONG_PROMPT and done < total:
            columns = TextColumn("reading the prompt"), BarColumn(), MofNCompleteColumn()
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task("", total=total)
        if self._progress is not None:
            self._progress.update(self._task, completed=done)
            if done >= total:
                self._end_progress()

    def text(self, piece: str) -> None:
        """Print it now."""
        if self._show_text:
            sys.stdout.buffer.write(piece.encode("utf-8"))
            sys.stdout.buffer.flush()

    def report(self, report: dict[str, Any]) -> None:
        """End the text with a line break; then what it cost."""
        self.text("\n")
        self._console.print(_summary(report))
        if report["workers"]:
            self._console.print(_workers(report["workers"]))

    def _end_progress(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _summary(report: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    prompt, answer = len(report["prompt_ids"]), len(report["ids"])
    table.add_row("prompt", f"{prompt} tokens, {_speed(report['prompt_tps'])}")
    table.add_row("answer", f"{answer} tokens, {_speed(report['decode_tps'])}, ended by {report['finish_reason']}")
    table.add_row("kernels", f"{report['isa']}, threads: {report['threads']}")
    table.add_row("local", f"{report['local_entries']} expert entries computed by the coordinator")
    table.add_row("sha256", f"ids {report['sha256_ids'][:16]}, logits {report['sha256_logits'][:16]}")
    return table


def _speed(tokens_per_s: float | None) -> str:
    return "too few to time" if tokens_per_s is None else f"{tokens_per_s:.1f} a second"


def _workers(workers: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("worker")
    for heading in ("process", "experts", "calls", "entries", "busy s", "wait s"):
        table.add_column(heading, justify="right")
    for worker in workers:
        counts = [str(worker[key]) for key in ("pid", "experts", "calls", "entries")]
        table.add_row(worker["name"], *counts, f"{worker['busy_s']:.2f}", f"{worker['wait_s']:.2f}")
    return table
