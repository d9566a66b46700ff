"""The profile of a cluster: the coordinator's parts and its workers', for one answer."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmark_page import table
from native_timers import ADDED, EXPERTS, in_order
from our_side import OurSide, our_side
from paired_figures import in_turn
from profile_here import PROMPT
from profiled import BETWEEN, Tellings, with_timers
from sides import Timing

from coordinator.config import COORDINATOR
from coordinator.interrupts import Interrupts
from protocol.model import Model
from protocol.wording import counted

SEED = 1
REST, WHOLE = "rest: Python, sampling, messages", "whole"
WITHIN = {EXPERTS: "of local: experts", ADDED: "of take: answers added"}
"""Kernels that the coordinator runs while a layer's experts are under way: their time is in that of BETWEEN."""

Seconds = dict[str, float]
"""By part, of one answer."""
Milliseconds = dict[str, float]
"""By part, of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Of one number of workers: what each round found."""

    name: str
    tokens: list[Milliseconds]
    chunks: list[Milliseconds]


def cluster_profiles(path: Path, options: argparse.Namespace, interrupts: Interrupts) -> list[Found]:
    """All numbers of workers in turns, in clusters that stay up."""
    with Model.open(path) as model:
        vocabulary = model.geometry.vocabulary
    ids: list[int] = np.random.default_rng(SEED).integers(0, vocabulary, max(options.chunk, PROMPT)).tolist()
    deadline = time.monotonic() + options.within_s
    with ExitStack() as stack:
        clusters = []
        for workers in options.workers:
            tellings = Tellings()
            cluster = our_side(
                path, interrupts, workers=workers, threads=workers, changed=with_timers, on_line=tellings.on_line
            )
            side = stack.enter_context(cluster)
            side.ask([ids], 8)
            clusters.append((side, tellings, Found(name=counted(workers, "worker"), tokens=[], chunks=[])))
        for number in range(options.rounds):
            for side, tellings, found in in_turn(clusters, number):
                found.chunks.append(_asked(side, tellings, ids[: options.chunk], 1))
                found.tokens.append(_asked(side, tellings, ids[:PROMPT], options.tokens + 1))
                sys.stderr.write(
                    f"{path.name}, {found.name}: {found.chunks[-1][WHOLE]:.0f} ms, {found.tokens[-1][WHOLE]:.1f} ms\n"
                )
            if time.monotonic() > deadline:
                break
    return [found for _, _, found in clusters]


def there_tables(file: str, found: Sequence[Found]) -> str:
    """One table of a decode step, one of a chunk."""
    tokens = _table(found, [each.tokens for each in found])
    chunks = _table(found, [each.chunks for each in found])
    return f"{file}, a decode step with workers:\n\n{tokens}\n{file}, a chunk of a prompt with workers:\n\n{chunks}"


def _asked(side: OurSide, tellings: Tellings, ids: list[int], tokens: int) -> Milliseconds:
    """One answer. Of decoding, what the prompt takes is measured by an answer of one token and taken away."""
    tellings.ask(side.launcher)
    prompt = _spent(side, tellings, side.ask([ids], 1))
    if tokens == 1:
        return _milliseconds(*prompt, 1)
    seconds, _ = prompt
    timing = side.ask([ids], tokens)
    both, _ = _spent(side, tellings, timing)
    after = {
        process: {part: spent - seconds[process].get(part, 0.0) for part, spent in parts.items()}
        for process, parts in both.items()
    }
    return _milliseconds(after, timing.decode_s, tokens - 1)


def _spent(side: OurSide, tellings: Tellings, timing: Timing) -> tuple[dict[str, Seconds], float]:
    """By process and part since the last time, and how long the prompt took."""
    told = tellings.ask(side.launcher)
    found = {process: {part: spent["seconds"] for part, spent in parts.items()} for process, parts in told.items()}
    for worker in timing.report["workers"]:
        found[worker["name"]] |= {"says busy": worker["busy_s"], "says waiting": worker["wait_s"]}
    return found, timing.prompt_s


def _milliseconds(spent: Mapping[str, Seconds], whole_s: float, steps: int) -> Milliseconds:
    """Of one step: the coordinator's parts, then of each worker what it computed and said."""
    ours = spent[COORDINATOR]
    dense = in_order(ours.keys() - WITHIN.keys() - set(BETWEEN))
    found = {part: ours[part] for part in dense}
    found |= {f"experts: {part}": ours.get(part, 0.0) for part in BETWEEN}
    found[REST] = whole_s - sum(found.values())
    found[WHOLE] = whole_s
    found |= {name: ours.get(part, 0.0) for part, name in WITHIN.items()}
    for process in sorted(spent.keys() - {COORDINATOR}):
        found |= {f"{process}: {part}": seconds for part, seconds in spent[process].items()}
    return {part: seconds * 1e3 / steps for part, seconds in found.items()}


def _table(found: Sequence[Found], rounds: Sequence[Sequence[Milliseconds]]) -> str:
    names = dict.fromkeys(part for each in rounds for one in each for part in one)
    rows = []
    for part in names:
        row: list[object] = [part]
        for each in rounds:
            middle = statistics.median(one.get(part, 0.0) for one in each)
            row += [middle, f"{middle / statistics.median(one[WHOLE] for one in each):.1%}"]
        rows.append(row)
    return table(["part", *(column for each in found for column in (f"{each.name}: ms", "share"))], rows)
