"""The page of a comparison: what stands beside what, paired by rounds, and what is said of spoilt figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comparison_table import order_of_a_round, own_ratios, remarks, speeds
from interleaved import Question, Sample, decode, many, prefill
from processor_use import ProcessorUse
from samples import OURS, THEIRS
from sides import Prompts, Side, Timing

PREFILL, DECODE = prefill(range(100)), decode([1], 10)


@dataclass(frozen=True, slots=True)
class NamedSide:
    """A side that nobody asks."""

    program: str
    name: str
    threads: int
    workers: int = 0
    label: str = ""

    def ask(self, prompts: Prompts, tokens: int) -> Timing:
        raise NotImplementedError

    def pids(self) -> Sequence[int]:
        return ()


ONE, TWO, MESH = NamedSide(OURS, "one", 1), NamedSide(OURS, "two", 2), NamedSide(OURS, "mesh", 2, workers=2)
LLAMA_1, LLAMA_2 = NamedSide(THEIRS, "1 thread", 1), NamedSide(THEIRS, "2 threads", 2)


def sample(number: int, question: Question, side: Side, seconds: float, **timing: object) -> Sample:
    facts = {"ids": ((1, 2, 3),), "decoded": 10, "note": "", **timing}
    return Sample(
        number=number,
        question=question,
        side=side,
        timing=Timing(prompt_s=seconds, decode_s=seconds, **facts),  # type: ignore[arg-type]
        checks=(2.0, 1.0),
        use=ProcessorUse(wall_s=4.0, idle_s={OURS: 0.2, THEIRS: 0.0}, others_s=1.0),
    )


def cells(text: str) -> list[list[str]]:
    """Rows of a Markdown table without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_who_has_as_many_threads_is_asked_next_to_each_other() -> None:
    order = order_of_a_round([ONE, TWO, MESH], [LLAMA_1, LLAMA_2])
    assert [side.name for side in order] == ["1 thread", "one", "two", "2 threads", "mesh"]


def test_ratios_are_of_rounds_and_of_as_many_threads() -> None:
    samples = [
        sample(0, PREFILL, ONE, 2.0),
        sample(0, PREFILL, LLAMA_1, 1.0),
        sample(0, PREFILL, LLAMA_2, 77.0),
        sample(1, PREFILL, LLAMA_1, 20.0),
        sample(1, PREFILL, ONE, 10.0),
    ]
    (row,) = cells(speeds(samples))
    assert row == [
        "prefill, 100",
        "one",
        "30.0 [20.0-40.0] (2)",
        "1 thread",
        "52.5 [28.8-76.2] (2)",
        "1.25 [0.875-1.62] (2)",
        "1.50 [1.00-2.00] (8)",
        "0.25",
    ]


def test_decoding_counts_the_tokens_after_the_first() -> None:
    assert DECODE.tokens == 11
    assert sample(0, DECODE, ONE, 2.0).speed == 5.0


def test_without_the_other_program_our_own_figures_stand_alone() -> None:
    (row,) = cells(speeds([sample(0, DECODE, ONE, 2.0)]))
    assert row[1:6] == ["one", "5.00 (1)", "not measured", "", ""]


def test_a_run_that_ends_early_leaves_no_row_without_our_figures() -> None:
    samples = [sample(0, PREFILL, ONE, 2.0), sample(0, PREFILL, LLAMA_1, 1.0), sample(0, DECODE, LLAMA_1, 1.0)]
    assert [row[0] for row in cells(speeds(samples))] == ["prefill, 100"]
    assert "ids" not in remarks(samples)


def test_remarks_tell_of_ids_idle_processes_and_late_workers() -> None:
    samples = [
        sample(0, DECODE, ONE, 1.0),
        sample(0, DECODE, TWO, 1.0, note="a worker was late"),
        sample(0, DECODE, LLAMA_1, 1.0, ids=((1, 2, 4),)),
    ]
    assert remarks(samples).splitlines() == [
        "- decode, 10: the greedy ids of expertmesh are the same in all answers.",
        "- decode, 10: llama.cpp, 1 thread: the same up to 2 of 11 ids.",
        "- idle processes of expertmesh used 0.0500 of a processor while others were asked.",
        "- idle processes of llama.cpp used 0.0000 of a processor while others were asked.",
        "- two: a worker was late.",
    ]


def test_other_bits_of_ours_cannot_be_overlooked() -> None:
    samples = [sample(0, DECODE, ONE, 1.0), sample(0, DECODE, TWO, 1.0, ids=((1, 2, 9),))]
    assert "expertmesh are DIFFERENT: 2 texts" in remarks(samples)


def test_workers_stand_beside_none_and_a_pack_beside_the_file() -> None:
    packed = NamedSide(OURS, "two, pack", 2, label="pack")
    samples = [sample(0, DECODE, TWO, 2.0), sample(0, DECODE, MESH, 4.0), sample(0, DECODE, packed, 1.0)]
    assert cells(own_ratios([*samples, sample(0, DECODE, ONE, 1.0)])) == [
        ["decode, 10", "mesh", "two", "0.500 (1)"],
        ["decode, 10", "two, pack", "two", "2.00 (1)"],
    ]


def test_several_at_once_have_two_speeds() -> None:
    crowd = sample(0, many([[1, 2, 3], [4, 5, 6]], 10), TWO, 2.0, decoded=20)
    assert [row[:3] for row in cells(speeds([crowd]))] == [
        ["prefill, 2 x 3", "two", "3.00 (1)"],
        ["decode, 2 x 10", "two", "10.0 (1)"],
    ]
