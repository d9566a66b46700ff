"""Benchmarks that are one command, on a tiny model: they run, and their pages have every row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cgroups import skip_unless_possible
from read_bandwidth import SMALL, WALKS, Memory, Readings, own_memory, reader
from token_bytes import GATE_UP, HEAD_PART, ROW, read_by_token, token_bytes

from coordinator.profile import Profile
from coordinator.profile_file import write_profile
from expert_worker.lookahead.trace import read_trace
from protocol.model import Model

BENCHMARKS = Path(__file__).parent


def printed(program: str, *options: str | Path) -> list[list[str]]:
    """The rows of all tables that a benchmark prints."""
    done = subprocess.run(
        [sys.executable, "-P", BENCHMARKS / program, *options],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{BENCHMARKS}:{BENCHMARKS.parent / 'support'}"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_bytes_of_a_token_are_those_of_the_file_but_for_other_experts_and_rows(tiny_model: Path) -> None:
    with Model.open(tiny_model) as model:
        parts, geometry = token_bytes(model), model.geometry
        assert sum(part.stored for part in parts.values()) == sum(one.bytes for one in model.files.tensors.values())
        assert parts[GATE_UP].read * geometry.experts == parts[GATE_UP].stored * geometry.experts_used
        assert parts[HEAD_PART].read == parts[HEAD_PART].stored
        assert parts[ROW].read * geometry.vocabulary == parts[ROW].stored
        assert read_by_token(model) == sum(part.read for part in parts.values())


def test_memory_is_read_in_every_way() -> None:
    memory, readings = own_memory(1 << 20, SMALL), Readings()
    other = Memory(pages="other", data=np.ones(1 << 20, np.uint8))
    with reader() as program:
        for threads in (1, 2):
            assert all(program.speed(memory, threads, walk) > 0 for walk in WALKS)
            for area in (memory, other):
                readings.take(0, program, area, threads)
    assert readings.kinds() == [(SMALL, 1), ("other", 1), (SMALL, 2), ("other", 2)]
    assert readings.limit(2)[0] == max(readings.of(SMALL, 2)[0], readings.of("other", 2)[0])


def test_the_roofline_has_bytes_bandwidth_and_shares(tiny_model: Path) -> None:
    short = ["--rounds", "1", "--tokens", "2", "--buffer-gb", "0.01", "--settle-s", "0", "--threads", "1"]
    rows = printed("roofline.py", tiny_model, *short)
    assert {row[0] for row in rows} >= {"experts: gate, up", "router", "head", "all"}
    assert [row[1] for row in rows if row[0] == "1"] == ["4 KiB pages", "huge pages", "the mapped model"]
    assert [row[1] for row in rows if row[0] == tiny_model.name] == ["1"]


@pytest.mark.cluster
@pytest.mark.timeout(110)
def test_a_profile_names_every_kernel(tiny_model: Path) -> None:
    short = ["--rounds", "1", "--tokens", "2", "--chunk", "8", "--settle-s", "0", "--threads", "1", "--workers", "1"]
    rows = printed("step_profile.py", tiny_model, *short)
    parts = [row[0] for row in rows]
    here = ["embedding", "norms, quantise", "attention: q, k, v", "rope, cache store", "attention: cache"]
    here += ["attention: output", "router", "experts: gate, up", "experts: down", "combine", "head", "sampling"]
    assert parts[1 : len(here) + 4] == [*here, "Python between", "whole", "whole, a layer in few calls"]
    assert parts.count("experts: wait") == parts.count("worker-0: experts") == 2
    shares = [float(row[2].removesuffix("%")) for row in rows[1 : len(here) + 2]]
    assert sum(shares) == pytest.approx(100.0, abs=1.0)


def test_kernels_are_measured_in_both_layouts() -> None:
    short = ["--rounds", "1", "--types", "F32", "Q8_0", "--bytes", "4000000", "--threads", "1"]
    rows = printed("kernel_speed.py", *short)
    assert [row[1:3] for row in rows[1:]] == [["F32", "rows"], ["Q8_0", "rows"], ["Q8_0", "packed"]]


def test_recall_has_every_predictor_and_layer_and_its_trace_is_what_an_oracle_reads(
    tmp_path: Path, demo_model: Path
) -> None:
    trace = tmp_path / "trace.npz"
    asked: list[str | Path] = ["--prompt", "In the beginning", "--tokens", "3", "--trace", trace]
    rows = printed("recall.py", demo_model, *asked)
    names = ["previous step", "popularity, k", "next router, k, input as it is", "next router, k + 2, input as it is"]
    assert all(sum(row[0] == name for row in rows) == 3 for name in names)
    assert [row[1:] for row in rows if row[0] == "predictor"][1:] == [["1", "2", "3", "4", "5"]] * 2
    used = read_trace(trace)
    assert sorted(used) == [(step, layer) for step in range(3) for layer in range(6)]
    assert all(len(used[step, layer]) == 4 for step, layer in used if step > 0)


def test_the_cost_of_a_layer_input_has_every_side() -> None:
    rows = printed("publication_cost.py", "--tokens", "4", "--rounds", "1")
    assert [row[0] for row in rows[1:]] == ["no lookahead", "lookahead", "it does nothing"]


def test_planning_has_a_row_for_each_number_of_workers_room_and_replicas() -> None:
    rows = printed("planning.py", "--workers", "2", "3", "--rounds", "1")
    assert [row[0] for row in rows[1:]] == ["2"] * 3 + ["3"] * 3
    assert all(float(cell) > 0 for row in rows[1:] for cell in row[3:])


@pytest.mark.cluster
@pytest.mark.timeout(110)
def test_simulated_clusters_have_a_row_for_each_number_of_workers(tiny_model: Path) -> None:
    short: list[str | Path] = [
        "--model",
        tiny_model,
        "--rounds",
        "1",
        "--tokens",
        "4",
        "--workers",
        "1",
        "2",
        "--settle-s",
        "0",
    ]
    rows = printed("simulated.py", *short)
    assert [row[0] for row in rows] == ["workers", "1", "2"]
    for _, measured, planned, ratio, _, from_one, other_ratio, _ in rows[1:]:
        assert all(float(cell.split()[0]) > 0 for cell in (measured, planned, ratio, from_one, other_ratio))


@pytest.mark.cluster
@pytest.mark.timeout(110)
def test_simulated_pauses_have_a_row_for_each_mishap() -> None:
    rows = printed("simulated_pauses.py", "--rounds", "1", "--times", "1")
    assert [row[1] for row in rows] == ["mishap", "killed", "frozen"]
    for _, _, measured, simulated, ratio in rows[1:]:
        assert all(float(cell.split()[0]) > 0 for cell in (measured, simulated, ratio))


def test_a_profile_is_worth_what_its_ranking_finds_of_other_uses(tmp_path: Path) -> None:
    for name, counts in (("one", [[9, 1], [0, 4]]), ("uses", [[1, 2], [3, 4]])):
        made = Profile(fingerprint="0" * 16, rows=1, counts=np.array(counts, np.float64))
        write_profile(made, tmp_path / name, option="-o")
    rows = printed("profile_worth.py", tmp_path / "one", "--uses", tmp_path / "uses")
    assert rows[1:] == [
        ["no profile", "10%", "40%", "60%"],
        ["one", "10%", "50%", "70%"],
        ["uses", "40%", "70%", "90%"],
    ]


def test_sources_of_a_model_larger_than_memory_are_measured_in_a_group(demo_model: Path) -> None:
    skip_unless_possible()
    asked = ["--parts", "50", "--slow-mbps", "0", "--tokens", "3", "--rounds", "1", "--threads", "1"]
    rows = printed("tiers.py", "--model", demo_model, *asked, "--ways", "mapped", "direct", "direct, lookahead")
    assert [row[0] for row in rows] == ["way", "mapped", "direct", "direct, lookahead"]
    for _, tokens_per_s, _, stall_ms, _, hits, *_ in rows[1:]:
        assert float(tokens_per_s) > 0
        assert float(stall_ms) >= 0
        assert hits.endswith("%")


def test_what_failures_cost_is_told_for_every_trouble() -> None:
    rows = printed("failures.py", "--rounds", "1", "--tokens", "60", "--only", "pauses")
    assert [row[:2] for row in rows[1:]] == [
        [who, trouble]
        for who in ("another worker", "the coordinator")
        for trouble in ("nothing", "killed", "frozen", "cut off")
    ]
