"""What the samples of two programs come to: the tables and remarks of docs/comparison.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from benchmark_page import table
from interleaved import Sample
from paired_figures import paired_ratios, shared_start, spread
from samples import OURS, THEIRS, Figure, by_question, figures, rounds_of, sides_of, speeds_of
from sides import Side

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
    for name, asked, figure in figures(samples):
        for ours in sides_of(asked, OURS):
            rivals = [side for side in sides_of(asked, THEIRS) if side.threads == ours.threads]
            rows += [_row(name, figure, rounds_of(asked, ours), rounds_of(asked, side)) for side in rivals]
            if not rivals:
                rows.append(_row(name, figure, rounds_of(asked, ours), {}))
    return table(COLUMNS, rows)


def own_ratios(samples: Sequence[Sample]) -> str:
    """Our sides beside each other: workers beside none with as many threads, other files beside the model itself."""
    rows = []
    for name, asked, figure in figures(samples):
        ours = sides_of(asked, OURS)
        for side, other in permutations(ours, 2):
            if _is_same_but_alone(side, other) or _is_same_of_the_model(side, other):
                ratios = paired_ratios(*(speeds_of(asked, each, figure) for each in (side, other)))
                rows += [[name, side.name, other.name, spread(ratios)]] if ratios else []
    return table(["what, tokens", "side", "beside", "ratio"], rows) if rows else ""


def _is_same_but_alone(side: Side, other: Side) -> bool:
    return side.workers > 0 == other.workers and (side.threads, side.label) == (other.threads, other.label)


def _is_same_of_the_model(side: Side, other: Side) -> bool:
    return side.label != "" and side.name == f"{other.name}, {side.label}"


def remarks(samples: Sequence[Sample]) -> str:
    """What else was seen: the tokens, what idle processes used, and what spoils a figure."""
    lines = [*_about_ids(samples), *_about_idleness(samples)]
    lines += sorted({f"{sample.side.name}: {sample.timing.note}" for sample in samples if sample.timing.note})
    return "".join(f"- {line}.\n" for line in lines)


def _row(name: str, figure: Figure, ours: Mapping[int, Sample], theirs: Mapping[int, Sample]) -> list[object]:
    both = [*ours.values(), *theirs.values()]
    ratios = paired_ratios(*({number: figure(each) for number, each in side.items()} for side in (ours, theirs)))
    return [
        name,
        *_side_and_speed(ours, figure),
        *(_side_and_speed(theirs, figure) if theirs else ("not measured", "")),
        spread(ratios) if ratios else "",
        spread([ratio for sample in both for ratio in sample.checks]),
        f"{sum(sample.use.others_s for sample in both) / sum(sample.use.wall_s for sample in both):.2f}",
    ]


def _side_and_speed(side: Mapping[int, Sample], figure: Figure) -> tuple[object, object]:
    return next(iter(side.values())).side.name, spread([figure(sample) for sample in side.values()])


def _about_ids(samples: Sequence[Sample]) -> Iterator[str]:
    for asked in by_question(samples):
        question = asked[0].question
        ours = {sample.timing.ids for sample in asked if sample.side.program == OURS}
        if question.tokens == 1 or not ours:
            continue
        verdict = "the same in all answers" if len(ours) == 1 else f"DIFFERENT: {len(ours)} texts"
        yield f"{question.name}: the greedy ids of {OURS} are {verdict}"
        for side in sides_of(asked, THEIRS):
            texts = {sample.timing.ids for sample in rounds_of(asked, side).values()}
            pairs = [pair for one in ours for text in texts for pair in zip(one, text, strict=True)]
            shared = min(shared_start(*pair) for pair in pairs)
            yield f"{question.name}: {THEIRS}, {side.name}: the same up to {shared} of {question.tokens} ids"


def _about_idleness(samples: Sequence[Sample]) -> Iterator[str]:
    wall_s = sum(sample.use.wall_s for sample in samples)
    for program in samples[0].use.idle_s if samples else ():
        idle_s = sum(sample.use.idle_s[program] for sample in samples)
        yield f"idle processes of {program} used {idle_s / wall_s:.4f} of a processor while others were asked"
