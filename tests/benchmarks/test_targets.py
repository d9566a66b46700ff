"""The table of aims: which sides it compares, what it derives, and when an aim counts as met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from interleaved import Question, Sample, decode, many, prefill
from paired_figures import spread
from processor_use import ProcessorUse
from samples import OURS, THEIRS
from sides import Side, Timing
from starts import PROCESSES, Start
from targets import Run, Target, targets_table
from test_comparison_table import NamedSide, cells

DECODE, PREFILL, MANY = decode([1], 10), prefill(range(100)), many([[1, 2]] * 16, 10)
ONE, TWO = NamedSide(OURS, "no workers, 1 thread", 1), NamedSide(OURS, "no workers, 2 threads", 2)
MESH = NamedSide(OURS, "2 workers of 1 thread, coordinator of 1 thread", 2, workers=2)
PACK = NamedSide(OURS, "no workers, 2 threads, pack", 2, label="pack")
LLAMA = [NamedSide(THEIRS, f"{threads}, plain", threads, label="plain") for threads in (1, 2)]
SLOWER = NamedSide(THEIRS, "2, repacked", 2, label="repacked")


def sample(side: Side, question: Question, speed: float, report: Mapping[str, Any] | None = None) -> Sample:
    seconds = (100 if question is PREFILL else 10) / speed
    return Sample(
        number=0,
        question=question,
        side=side,
        timing=Timing(prompt_s=seconds, decode_s=seconds, decoded=10, ids=((1,),), report=report or {}),
        checks=(2.0, 2.0),
        use=ProcessorUse(wall_s=1.0, idle_s={}, others_s=0.0),
    )


def rows(samples: Sequence[Sample], **facts: Any) -> dict[tuple[str, str, str], tuple[str, str]]:
    run = Run(samples=samples, **{"limits": {}, "starts": [], **facts})
    return {(work, file, aim): (found, met) for work, file, aim, found, met in cells(targets_table(run))}


def test_decoding_stands_beside_the_faster_layout_of_as_many_threads_and_the_limit() -> None:
    samples = [sample(ONE, DECODE, 12.0), sample(LLAMA[0], DECODE, 10.0)]
    samples += [sample(TWO, DECODE, 22.0), sample(LLAMA[1], DECODE, 20.0), sample(SLOWER, DECODE, 10.0)]
    found = rows(samples, limits={1: {0: 16.0}, 2: {0: 24.0}})
    file = "GGUF in place"
    assert found["decode, one process, 1 thread", file, "1.25x llama.cpp (plain)"] == ("1.20 (1)", "no")
    assert found["decode, one process, 2 threads", file, "1.1x llama.cpp (plain)"] == ("1.10 (1)", "yes")
    assert found["decode, one process, 1 thread", file, "0.9 of the bandwidth limit"] == ("0.750 (1)", "no")
    assert found["decode, one process, 2 threads", file, "0.9 of the bandwidth limit"] == ("0.917 (1)", "yes")


def test_workers_stand_beside_none_and_beside_what_is_derived_for_rpc() -> None:
    report = {"layers": {"overhead_p50_us": 300.0}}
    found = rows([sample(MESH, DECODE, 19.6, report), sample(TWO, DECODE, 20.0), sample(LLAMA[1], DECODE, 20.0)])
    work = "decode, 2 workers of 1 thread (coordinator of 1 thread)"
    rpc = "1.5x llama.cpp over RPC, derived: 0.98x its 2 threads (plain)"
    assert found[work, "GGUF in place", "0.85x ours without workers, 2 threads"] == ("0.980 (1)", "yes")
    assert found[work, "GGUF in place", rpc] == ("0.980 (1)", "yes")
    overhead = "a layer but for kernels, P50, 2 workers (coordinator of 1 thread)"
    assert found[overhead, "GGUF in place", "0.25 ms at most"] == ("0.300 (1)", "no")


def test_each_form_of_the_weights_has_rows_of_its_own() -> None:
    start = Start(program=OURS, how=PROCESSES, workers=2, label="pack", seconds=lambda: 0.5)
    samples = [sample(PACK, PREFILL, 90.0), sample(TWO, MANY, 30.0), sample(LLAMA[1], PREFILL, 100.0)]
    found = rows([*samples, sample(LLAMA[1], MANY, 10.0)], starts=[(start, [0.9, 0.7])])
    prompt = "prefill, one process, 2 threads"
    assert found[prompt, "pack", "1.8x llama.cpp (plain)"] == ("0.900 (1)", "no")
    assert (prompt, "GGUF in place", "1.8x llama.cpp (plain)") not in found
    together = "decode, several at once, no workers, 2 threads"
    assert found[together, "GGUF in place", "2x llama.cpp (plain)"] == ("3.00 (1)", "yes")
    start_up = "start to first token, 2 workers"
    assert found[start_up, "pack", "under 1 s"] == ("0.800 [0.750-0.850] (2)", "yes")
    assert found[start_up, "GGUF in place", "under 1 s"] == ("not measured", "")


@pytest.mark.parametrize(
    ("figures", "at_most", "verdict"),
    [
        ([1.0, 1.1, 1.2], False, "yes"),
        ([0.8, 1.1, 1.2], False, "yes, by less than the spread"),
        ([0.8, 0.9, 1.3], False, "no, by less than the spread"),
        ([0.8, 0.9, 0.95], False, "no"),
        ([0.8, 0.9, 0.95], True, "yes"),
    ],
)
def test_a_median_within_the_spread_of_its_aim_is_told(figures: list[float], at_most: bool, verdict: str) -> None:
    target = Target(work="", file="", aim="", bound=1.0, found=spread(figures), at_most=at_most)
    assert target.verdict == verdict
