"""Samples sorted: by what was asked, by who answered, by round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from interleaved import Sample
from sides import Side

OURS, THEIRS = "expertmesh", "llama.cpp"

Figure = Callable[[Sample], float]
"""What is told of a sample, in tokens per second."""


def by_question(samples: Sequence[Sample]) -> list[list[Sample]]:
    """In the order of the first round."""
    names = dict.fromkeys(sample.question.name for sample in samples)
    return [[sample for sample in samples if sample.question.name == name] for name in names]


def figures(samples: Sequence[Sample]) -> Iterator[tuple[str, list[Sample], Figure]]:
    """Each speed that was asked for: its name, the samples that have it, and how to get it from one."""
    for asked in by_question(samples):
        question = asked[0].question
        if question.prompt_speed is not None:
            yield question.prompt_name, asked, _prompt_speed
        yield question.name, asked, _speed


def sides_of(samples: Sequence[Sample], program: str) -> list[Side]:
    """In the order of the first round."""
    return list({sample.side.name: sample.side for sample in samples if sample.side.program == program}.values())


def rounds_of(samples: Sequence[Sample], side: Side) -> dict[int, Sample]:
    """By their numbers."""
    return {sample.number: sample for sample in samples if sample.side == side}


def speeds_of(samples: Sequence[Sample], side: Side, figure: Figure) -> dict[int, float]:
    """By round."""
    return {number: figure(sample) for number, sample in rounds_of(samples, side).items()}


def _speed(sample: Sample) -> float:
    return sample.speed


def _prompt_speed(sample: Sample) -> float:
    of_prompts = sample.question.prompt_speed
    assert of_prompts is not None
    return of_prompts(sample.timing)
