"""How an answer looks: its text on stdout as it comes; progress, notices and the closing table on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from coordinator.cli.output import put
from coordinator.cli.reading import Reading
from coordinator.cli.wording import duration
from coordinator.interrupts import Interrupts
from protocol.wording import counted

if TYPE_CHECKING:
    from coordinator.cli.answer_console import AnswerConsole

LONG_PROMPT = 64
"""Prompt tokens from which progress is worth showing."""
SAY_EVERY_S = 10.0
"""How often progress in the prompt is told where no bar can be drawn."""


class AnswerView:
    """A listener (coordinator.answering.Listener) for people; without `show_text` the text is not printed."""

    def __init__(
        self, *, show_text: bool, interrupts: Interrupts | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show_text = show_text
        self._interrupts = interrupts or Interrupts()
        self._clock = clock
        self._reading = Reading()
        self._said_at = clock()
        self._draws = False
        self._amid_line = False

    def __enter__(self) -> AnswerView:
        return self

    def __exit__(self, *error: object) -> None:
        self._end_progress()
        if self._amid_line:
            with suppress(OSError):  # what went wrong first is what counts
                self.text("\n")

    def tell(self, notice: str) -> None:
        """A line that is not part of the answer."""
        self._console.tell(notice)

    def prefilled(self, done: int, total: int) -> None:
        """Long prompts: a bar on a terminal, elsewhere a line now and then, beside the text only."""
        now = self._clock()
        self._reading.take(done, now)
        if done >= total:
            self._end_progress()
        elif self._console.is_terminal:
            if total >= LONG_PROMPT:
                self._draws = True
                self._console.draw_progress(done, total, self._pace(total))
        elif self._show_text and now - self._said_at >= SAY_EVERY_S:
            self._said_at = now
            self.tell(f"reading the prompt: {done} of {total} tokens{self._pace(total, ', ')}")

    def text(self, piece: str) -> None:
        """Print it now."""
        if self._show_text:
            put(piece)
            self._amid_line = not piece.endswith("\n")

    def report(self, report: dict[str, Any]) -> None:
        """End the text with a line break; then what it cost."""
        self.text("\n")
        self._console.report(_summary(report), report["workers"])

    @cached_property
    def _console(self) -> AnswerConsole:
        """Loaded when it is needed: before the first token processes that compute have more use for the time."""
        with self._interrupts.held():
            from coordinator.cli.answer_console import AnswerConsole

        return AnswerConsole()

    def _pace(self, total: int, before: str = "") -> str:
        """Speed and time left in the prompt, as far as they are known."""
        speed, left_s = self._reading.speed, self._reading.left_s(total)
        return "" if speed is None or left_s is None else f"{before}{speed:.0f} a second, {duration(left_s)} left"

    def _end_progress(self) -> None:
        if self._draws:
            self._draws = False
            self._console.end_progress()


def _summary(report: dict[str, Any]) -> list[str]:
    prompt, answer = (counted(len(report[ids]), "token") for ids in ("prompt_ids", "ids"))
    lines = [
        f"prompt   {prompt}, {_speed(report['prompt_tps'])}",
        f"answer   {answer}, {_speed(report['decode_tps'])}, ended by {report['finish_reason']}",
        f"kernels  {report['isa']}, threads: {report['threads']}",
        f"local    {_entries(report['local_entries'])} computed by the coordinator",
        f"sha256   ids {report['sha256_ids'][:16]}, logits {report['sha256_logits'][:16]}",
    ]
    if drafts := report["drafts"]["drafted"]:
        accepted, steps = report["drafts"]["accepted"], report["drafts"]["steps"]
        lines.insert(2, f"drafts   {accepted} of {drafts} accepted, {counted(steps, 'step')} after the first token")
    if report["device"] != "cpu":
        lines.insert(-2, f"device   {report['device']}, {_entries(report['device_entries'])} computed there")
    return lines


def _entries(count: int) -> str:
    return f"{count} expert entr{'y' if count == 1 else 'ies'}"


def _speed(tokens_per_s: float | None) -> str:
    return "too few to time" if tokens_per_s is None else f"{tokens_per_s:.1f} a second"
