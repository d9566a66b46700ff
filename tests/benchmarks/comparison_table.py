"""What the samples of two programs come to: the tables and remarks of docs/comparison.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmark_page import table
from interleaved import Sample
from paired_figures import paired_ratios, shared_start, spread
from sides import Side

OURS, THEIRS = "expertmesh", "llama.cpp"
COLUMNS = ("what, tokens", OURS, "tokens/s", THEIRS, "tokens/s", "ratio", "machine check", "others")


def order_of_a_round(ours: Sequence[Side], theirs: Sequence[Side]) -> list[Side]:
    """Sides with as many threads beside each other, theirs in the middle of ours."""
    order: list[Side] = []
    for threads in sorted({side.threads for side in (*ours, *theirs)}):
        mine = [side for side in ours if side.threads == threads]
        half = len(mine) // 2
        order += [*mine[:half], *(side for side in theirs if side.threads == threads), *mine[half:]]
    return order


def speeds(samples: Sequence[Sample]) -> str:
    """A row for each question and each of our sides, beside each of theirs with as many threads."""
    rows = []
    for asked in _by_question(samples):
        for ours in _sides(asked, OURS):
            rivals = [side for side in _sides(asked, THEIRS) if side.threads == ours.threads]
            rows += [_row(_rounds(asked, ours), _rounds(asked, side)) for side in rivals]
            if not rivals:
                rows.append(_row(_rounds(asked, ours), {}))
    return table(COLUMNS, rows)


def remarks(samples: Sequence[Sample]) -> str:
    """What else was seen: the tokens, what idle processes used, and what spoils a figure."""
    lines = [*_about_ids(samples), *_about_idleness(samples)]
    lines += sorted({f"{sample.side.name}: {sample.timing.note}" for sample in samples if sample.timing.note})
    return "".join(f"- {line}.\n" for line in lines)


def _row(ours: Mapping[int, Sample], theirs: Mapping[int, Sample]) -> list[object]:
    both = [*ours.values(), *theirs.values()]
    ratios = paired_ratios(*({number: each.speed for number, each in side.items()} for side in (ours, theirs)))
    return [
        both[0].question.name,
        *_side_and_speed(ours),
        *(_side_and_speed(theirs) if theirs else ("not measured", "")),
        spread(ratios) if ratios else "",
        spread([ratio for sample in both for ratio in sample.checks]),
        f"{sum(sample.use.others_s for sample in both) / sum(sample.use.wall_s for sample in both):.2f}",
    ]


def _side_and_speed(side: Mapping[int, Sample]) -> tuple[object, object]:
    return next(iter(side.values())).side.name, spread([sample.speed for sample in side.values()])


def _about_ids(samples: Sequence[Sample]) -> Iterator[str]:
    for asked in _by_question(samples):
        question = asked[0].question
        ours = {sample.timing.ids for sample in asked if sample.side.program == OURS}
        if question.tokens == 1 or not ours:
            continue
        verdict = "the same in all answers" if len(ours) == 1 else f"DIFFERENT: {len(ours)} texts"
        yield f"{question.name}: the greedy ids of {OURS} are {verdict}"
        for side in _sides(asked, THEIRS):
            texts = {sample.timing.ids for sample in _rounds(asked, side).values()}
            shared = min(shared_start(one, text) for one in ours for text in texts)
            yield f"{question.name}: {THEIRS}, {side.name}: the same up to {shared} of {question.tokens} ids"


def _about_idleness(samples: Sequence[Sample]) -> Iterator[str]:
    wall_s = sum(sample.use.wall_s for sample in samples)
    for program in samples[0].use.idle_s:
        idle_s = sum(sample.use.idle_s[program] for sample in samples)
        yield f"idle processes of {program} used {idle_s / wall_s:.4f} of a processor while others were asked"


def _by_question(samples: Sequence[Sample]) -> list[list[Sample]]:
    """In the order of the first round."""
    names = dict.fromkeys(sample.question.name for sample in samples)
    return [[sample for sample in samples if sample.question.name == name] for name in names]


def _sides(samples: Sequence[Sample], program: str) -> list[Side]:
    """In the order of the first round."""
    return list({sample.side.name: sample.side for sample in samples if sample.side.program == program}.values())


def _rounds(samples: Sequence[Sample], side: Side) -> dict[int, Sample]:
    return {sample.number: sample for sample in samples if sample.side == side}
