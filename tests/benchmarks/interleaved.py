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
    """What is asked, and which speeds it is about."""

    name: str
    prompts: tuple[tuple[int, ...], ...]
    tokens: int
    """Of each answer."""
    speed: Callable[[Timing], float]
    """Tokens per second, of all answers together."""
    prompt_speed: Callable[[Timing], float] | None = None
    """That of reading the prompts, where it is told beside the other."""
    prompt_name: str = ""
    most_threads: bool = False
    """Asked only of the sides that have the most threads."""


def prefill(prompt_ids: Sequence[int]) -> Question:
    """How fast is a prompt read?"""
    count = len(prompt_ids)
    return Question(
        name=f"prefill, {count}",
        prompts=(tuple(prompt_ids),),
        tokens=1,
        speed=lambda timing: count / timing.prompt_s,
    )


def decode(prompt_ids: Sequence[int], tokens: int) -> Question:
    """How fast do so many tokens follow the first one, after a short prompt?"""
    return Question(
        name=f"decode, {tokens}",
        prompts=(tuple(prompt_ids),),
        tokens=tokens + 1,
        speed=lambda timing: timing.decoded / timing.decode_s,
    )


def many(prompts: Sequence[Sequence[int]], tokens: int) -> Question:
    """How fast do all answers grow together, once each has begun, and how fast are their prompts read?"""
    count = sum(map(len, prompts))
    return Question(
        name=f"decode, {len(prompts)} x {tokens}",
        prompt_name=f"prefill, {len(prompts)} x {len(prompts[0])}",
        prompts=tuple(map(tuple, prompts)),
        tokens=tokens + 1,
        speed=lambda timing: timing.decoded / timing.decode_s,
        prompt_speed=lambda timing: count / timing.prompt_s,
        most_threads=True,
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
    sides: Sequence[Side],
    questions: Sequence[Question],
    rounds: int,
    check: MachineCheck,
    settle_s: float,
    before_question: Callable[[int, Question], None] = lambda number, question: None,
) -> Iterator[Sample]:
    """Every question to every side in each round, each time once the machine is undisturbed or `settle_s` is over.

    `before_question` is called with the round's number before a question goes round.
    """
    most = max(side.threads for side in sides)
    programs = {pid: side.program for side in sides for pid in side.pids()}
    for number in range(rounds):
        for question in questions:
            before_question(number, question)
            for side in in_turn(sides, number):
                if question.most_threads and side.threads < most:
                    continue
                before, clocks = check.settled(settle_s), read_clocks(programs)
                timing = side.ask(question.prompts, question.tokens)
                use = use_between(clocks, read_clocks(programs), programs, side.pids())
                yield Sample(
                    number=number,
                    question=question,
                    side=side,
                    timing=timing,
                    checks=(before, check.ratio()),
                    use=use,
                )
