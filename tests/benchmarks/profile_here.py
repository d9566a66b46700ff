"""The profile of a process that computes everything: its parts, round by round."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmark_page import table
from in_process import InProcess
from native_timers import EXPERTS_AGAIN, Parts, Timers, down_alone, in_order
from token_bytes import GATE_UP

PROMPT = 8
SAMPLING, PYTHON, WHOLE = "sampling", "Python between", "whole"
FEW_CALLS = "whole, a layer in few calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The mean of some steps of one round."""

    parts: Parts
    """By part; seconds, calls, operations and bytes of one step."""
    whole_s: float
    few_calls_s: float
    """The same step as the product computes it: without timers within the dense half of a layer."""

    @classmethod
    def of(cls, parts: Parts, whole_s: float, few_calls_s: float, steps: int) -> Step:
        """From what `steps` steps took together."""
        each = {part: {name: value / steps for name, value in spent.items()} for part, spent in parts.items()}
        return cls(parts=each, whole_s=whole_s / steps, few_calls_s=few_calls_s / steps)

    def seconds(self, part: str) -> float:
        """What the part took; of WHOLE, FEW_CALLS and PYTHON as well."""
        if part in (WHOLE, FEW_CALLS):
            return self.whole_s if part == WHOLE else self.few_calls_s
        if part == PYTHON:
            return self.whole_s - sum(spent["seconds"] for spent in self.parts.values())
        return self.parts.get(part, {}).get("seconds", 0.0)

    def rate(self, part: str, what: str) -> float | None:
        """`what` per second; None if the part has none of it."""
        spent = self.parts.get(part, {})
        return spent[what] / spent["seconds"] if spent.get(what) and spent["seconds"] else None


class Profile:
    """One file on so many threads."""

    def __init__(self, file: str, side: InProcess, timers: Timers) -> None:
        self._side, self._timers = side, timers
        side.on_sampled = lambda seconds: timers.add(SAMPLING, seconds)
        self.name = f"{file}, {side.threads} thread{'s'[: side.threads - 1]}"
        self.chunks: list[Step] = []
        self.tokens: list[Step] = []
        """Of each round."""
        self._warm = False

    def measure(self, chunk: int, tokens: int) -> None:
        """One round: a chunk and some tokens, the same again with the experts' two halves apart, and in few calls."""
        side = self._side
        if not self._warm:
            side.begin(chunk + 1)
            side.step(side.prompt(chunk))
            self._warm = True
        self.chunks.append(self._step(lambda: self._read(chunk), 1))
        self.tokens.append(self._step(lambda: self._decode(tokens), tokens))
        sys.stderr.write(
            f"{self.name}: a chunk of {chunk} rows in {self.chunks[-1].whole_s:.2f} s, "
            f"a token in {self.tokens[-1].whole_s * 1e3:.1f} ms\n"
        )

    def _read(self, chunk: int) -> float:
        self._side.begin(chunk + 1)
        self._timers.take()
        return self._side.step(self._side.prompt(chunk))

    def _decode(self, tokens: int) -> float:
        self._side.begin(PROMPT + tokens + 1)
        self._side.step(self._side.prompt(PROMPT))
        self._timers.take()
        return self._side.decode(tokens)

    def _step(self, computed: Callable[[], float], steps: int) -> Step:
        self._timers.split = True
        computed()
        apart = self._timers.take()
        self._timers.split = False
        whole_s = computed()
        parts = self._timers.take()
        assert EXPERTS_AGAIN in apart
        with self._timers.few_calls():
            few_calls_s = computed()
        return Step.of(down_alone(parts, apart[GATE_UP]), whole_s, few_calls_s, steps)


def here_tables(profiles: Sequence[Profile]) -> str:
    """One table of a decode step, in GB/s, and one of a chunk, in operations."""
    tokens = _table(profiles, lambda profile: profile.tokens, "read", "GB/s")
    chunks = _table(profiles, lambda profile: profile.chunks, "operations", "GOPS")
    return f"A decode step in one process:\n\n{tokens}\nA chunk of a prompt in one process:\n\n{chunks}"


def _table(profiles: Sequence[Profile], steps: Callable[[Profile], list[Step]], what: str, unit: str) -> str:
    of_all = [steps(profile) for profile in profiles]
    names = in_order(part for found in of_all for step in found for part in step.parts)
    rows = []
    for part in (*names, PYTHON, WHOLE, FEW_CALLS):
        row: list[object] = [part]
        for found in of_all:
            whole_s = statistics.median(step.whole_s for step in found)
            seconds = statistics.median(step.seconds(part) for step in found)
            rates = [rate for step in found if (rate := step.rate(part, what)) is not None]
            row += [seconds * 1e3, f"{seconds / whole_s:.1%}", statistics.median(rates) / 1e9 if rates else ""]
        rows.append(row)
    columns = [column for profile in profiles for column in (f"{profile.name}: ms", "share", unit)]
    return table(["part", *columns], rows)
