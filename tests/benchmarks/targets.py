"""What is aimed at on this project's benchmark model, beside what one run of the comparison found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import starts
from benchmark_page import table
from interleaved import Sample
from paired_figures import Spread, paired_ratios, spread
from samples import OURS, THEIRS, by_question, rounds_of, sides_of
from sides import Side

ONE_PROCESS = {1: 1.25, 2: 1.1}
"""Decoding beside llama.cpp, by threads."""
OF_THE_LIMIT = 0.9
OVER_RPC = 1.5
RPC_OF_TWO_THREADS = {"plain": 0.65, "repacked": 0.61}
"""What llama.cpp decodes with its experts in two RPC servers of one thread, as a share of what it decodes by itself on
two threads, by the layout of the latter. Measured once, 27.2 to 28.1 tokens/s beside 42.6 and 45.0; not in this run."""
OF_NO_WORKERS = 0.85
PREFILL = 1.8
MANY = 2.0
OVERHEAD_MS = 0.25
START_S = 1.0
TWO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One aim, and what was found."""

    work: str
    file: str
    aim: str
    bound: float
    found: Spread | None
    """None if it was not measured."""
    at_most: bool = False
    """Else the aim is a lower bound."""

    @property
    def verdict(self) -> str:
        """By the median; where the quartiles lie on both sides of the bound, that is said."""
        if self.found is None:
            return ""
        met = self.found.median <= self.bound if self.at_most else self.found.median >= self.bound
        between = self.found.low < self.bound < self.found.high
        return ("yes" if met else "no") + (", by less than the spread" if between else "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """All that a run of the comparison has found."""

    samples: Sequence[Sample]
    limits: Mapping[int, Mapping[int, float]]
    """Tokens per second that reading memory allows: by threads, then by round."""
    starts: starts.Taken


def targets_table(run: Run) -> str:
    """A row for each aim and each form of our weights."""
    labels = list(dict.fromkeys([side.label for side in sides_of(run.samples, OURS)] + _started(run)))
    rows = [
        [target.work, target.file, target.aim, "not measured" if target.found is None else target.found, target.verdict]
        for label in labels
        for target in _targets(run, label)
    ]
    return table(["work", "weights", "aim", "found", "met"], rows)


def _started(run: Run) -> list[str]:
    return [start.label for start, _ in run.starts if start.program == OURS]


def _targets(run: Run, label: str) -> Iterator[Target]:
    decoding = _asked(run, lambda sample: len(sample.question.prompts) == 1 and sample.question.tokens > 1)
    reading = _asked(run, lambda sample: sample.question.tokens == 1)
    together = _asked(run, lambda sample: len(sample.question.prompts) > 1)
    file = label or "GGUF in place"
    for threads, least in ONE_PROCESS.items():
        where = f"one process, {threads} thread{'s'[: threads - 1]}"
        yield from _beside_llama(f"decode, {where}", file, decoding, label, 0, threads, least)
        yield from _of_the_limit(f"decode, {where}", file, run, decoding, label, threads)
    yield from _over_rpc(file, decoding, label)
    yield from _of_no_workers(file, decoding, label)
    yield from _beside_llama("prefill, one process, 2 threads", file, reading, label, 0, TWO, PREFILL)
    for workers in (0, TWO):
        what = f"decode, several at once, {workers or 'no'} workers, 2 threads"
        yield from _beside_llama(what, file, together, label, workers, TWO, MANY)
    yield from _overhead(file, decoding, label)
    yield Target(
        work="start to first token, 2 workers",
        file=file,
        aim=f"under {START_S:g} s",
        bound=START_S,
        found=starts.found(run.starts, label, TWO),
        at_most=True,
    )


def _asked(run: Run, wanted: Callable[[Sample], bool]) -> list[Sample]:
    """The samples of the first question of that kind."""
    every = [asked for asked in by_question(run.samples) if wanted(asked[0])]
    return every[0] if every else []


def _ours(samples: Sequence[Sample], label: str, workers: int, threads: int) -> list[Side]:
    wanted = label, workers, threads
    return [side for side in sides_of(samples, OURS) if (side.label, side.workers, side.threads) == wanted]


def _beside(samples: Sequence[Sample], side: Side, other: Side) -> list[float]:
    """Their ratios, round by round."""
    return paired_ratios(*(_speeds(samples, each) for each in (side, other)))


def _speeds(samples: Sequence[Sample], side: Side) -> dict[int, float]:
    return {number: sample.speed for number, sample in rounds_of(samples, side).items()}


def _rival(samples: Sequence[Sample], threads: int) -> Side | None:
    """llama.cpp with so many threads, in the layout that is faster here."""
    rivals = [side for side in sides_of(samples, THEIRS) if side.threads == threads]
    return max(rivals, key=lambda side: spread(list(_speeds(samples, side).values())).median, default=None)


def _beside_llama(
    work: str, file: str, samples: Sequence[Sample], label: str, workers: int, threads: int, least: float
) -> Iterator[Target]:
    """One row for each of our sides so set up: coordinators may have threads of their own number."""
    rival = _rival(samples, threads)
    for side in _ours(samples, label, workers, threads):
        ratios = _beside(samples, side, rival) if rival is not None else []
        yield Target(
            work=work + _coordinator(side),
            file=file,
            aim=f"{least:g}x llama.cpp" + (f" ({rival.label})" if rival is not None else ""),
            bound=least,
            found=spread(ratios) if ratios else None,
        )


def _coordinator(side: Side) -> str:
    """What the name of a side with workers says behind the workers, so that two of them can be told apart."""
    return f" ({side.name.split(', ')[1]})" if side.workers else ""


def _of_the_limit(
    work: str, file: str, run: Run, samples: Sequence[Sample], label: str, threads: int
) -> Iterator[Target]:
    for side in _ours(samples, label, 0, threads):
        shares = paired_ratios(_speeds(samples, side), run.limits.get(threads, {}))
        yield Target(
            work=work,
            file=file,
            aim=f"{OF_THE_LIMIT:g} of the bandwidth limit",
            bound=OF_THE_LIMIT,
            found=spread(shares) if shares else None,
        )


def _over_rpc(file: str, samples: Sequence[Sample], label: str) -> Iterator[Target]:
    """llama.cpp's RPC mode is not part of the run: the aim is told as a share of its own two threads."""
    rival = _rival(samples, TWO)
    for side in _ours(samples, label, TWO, TWO):
        ratios = _beside(samples, side, rival) if rival is not None else []
        of_two = RPC_OF_TWO_THREADS[rival.label] if rival is not None else 0.0
        least = OVER_RPC * of_two
        yield Target(
            work=f"decode, 2 workers of 1 thread{_coordinator(side)}",
            file=file,
            aim=f"{OVER_RPC:g}x llama.cpp over RPC, derived: {least:.2f}x its 2 threads"
            + (f" ({rival.label})" if rival is not None else ""),
            bound=least,
            found=spread(ratios) if ratios else None,
        )


def _of_no_workers(file: str, samples: Sequence[Sample], label: str) -> Iterator[Target]:
    alone = _ours(samples, label, 0, TWO)
    for side in _ours(samples, label, TWO, TWO):
        ratios = _beside(samples, side, alone[0]) if alone else []
        yield Target(
            work=f"decode, 2 workers of 1 thread{_coordinator(side)}",
            file=file,
            aim=f"{OF_NO_WORKERS:g}x ours without workers, 2 threads",
            bound=OF_NO_WORKERS,
            found=spread(ratios) if ratios else None,
        )


def _overhead(file: str, samples: Sequence[Sample], label: str) -> Iterator[Target]:
    """What the coordinator's report says of the layers that it has last computed."""
    for side in _ours(samples, label, TWO, TWO):
        reports = [sample.timing.report.get("layers", {}) for sample in rounds_of(samples, side).values()]
        found = [layers["overhead_p50_us"] / 1000 for layers in reports if "overhead_p50_us" in layers]
        yield Target(
            work=f"a layer but for kernels, P50, 2 workers{_coordinator(side)}",
            file=file,
            aim=f"{OVERHEAD_MS:g} ms at most",
            bound=OVERHEAD_MS,
            found=spread(found) if found else None,
            at_most=True,
        )
