"""Asking several sides the same questions in turns, and looking at the machine before and after every answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from machine_check import MachineCheck
from paired_figures import in_turn, three_figures
from processor_use import ProcessorUse, read_clocks, use_between
from sides import Side, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and which speed it is about."""

    name: str
    prompt_ids: tuple[int, ...]
    tokens: int
    speed: Callable[[Timing], float]
    """Tokens per second."""


def prefill(prompt_ids: Sequence[int]) -> Question:
    """How fast is a prompt read?"""
    count = len(prompt_ids)
    return Question(
        name=f"prefill, {count}",
        prompt_ids=tuple(prompt_ids),
        tokens=1,
        speed=lambda timing: count / timing.prompt_s,
    )


def decode(prompt_ids: Sequence[int], tokens: int) -> Question:
    """How fast do so many tokens follow the first one, after a short prompt?"""
    return Question(
        name=f"decode, {tokens}",
        prompt_ids=tuple(prompt_ids),
        tokens=tokens + 1,
        speed=lambda timing: tokens / timing.decode_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer."""

    number: int
    """Of the round."""
    question: Question
    side: Side
    timing: Timing
    checks: tuple[float, float]
    """The machine check before and after it."""
    use: ProcessorUse
    """Meanwhile."""

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.question.speed(self.timing)

    def __str__(self) -> str:
        return (
            f"round {self.number + 1}: {self.question.name}: {self.side.program}, {self.side.name}:"
            f" {three_figures(self.speed)} tokens/s; machine check {self.checks[0]:.2f}, {self.checks[1]:.2f};"
            f" others {self.use.others_s / self.use.wall_s:.2f}"
        )


def in_turns(
    sides: Sequence[Side], questions: Sequence[Question], rounds: int, check: MachineCheck, settle_s: float
) -> Iterator[Sample]:
    """Every question to every side in each round, each time once the machine is undisturbed or `settle_s` is over."""
    programs = {pid: side.program for side in sides for pid in side.pids()}
    for number in range(rounds):
        for question in questions:
            for side in in_turn(sides, number):
                before, clocks = check.settled(settle_s), read_clocks(programs)
                timing = side.ask(question.prompt_ids, question.tokens)
                use = use_between(clocks, read_clocks(programs), programs, side.pids())
                yield Sample(
                    number=number,
                    question=question,
                    side=side,
                    timing=timing,
                    checks=(before, check.ratio()),
                    use=use,
                )
