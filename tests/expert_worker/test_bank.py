"""Experts of a real file: computed exactly, refused by name, never taken from a file that has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import twin_kernels as twin
from moe_models import tiny_model, write_model
from open_bank import activations, open_bank
from packs import pack_of

import native
from expert_worker.bank import ExpertBank
from protocol.errors import ExpertError
from protocol.gguf import GgufFile
from protocol.holder import refusals
from protocol.messages import F32, I64
from protocol.pack import Share

NO_CODES, NO_FLOATS = np.empty((0, 0), np.int8), np.empty((0, 0), np.float32)
SMALL = {"layers": 2, "experts": 4, "experts_used": 2, "embd": 64, "ff_exp": 32, "vocab": 300, "heads": 2}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small file of this test's own, which it may damage."""
    return write_model(tmp_path / "small.gguf", **SMALL)


def run(bank: ExpertBank, layer: int, x: F32, experts: list[int], weight: float = 0.5) -> tuple[F32, I64]:
    """Every row with every expert: as singles (experts * rows, width), and as sums (rows, width)."""
    count, width = x.shape
    expert = np.repeat(np.array(experts, np.int32), count)
    row = np.tile(np.arange(count, dtype=np.int32), len(experts))
    weights = np.full(len(expert), weight, np.float32)
    singles, sums = np.zeros((len(expert), width), np.float32), np.zeros((count, width), np.int64)
    none, slots = np.zeros((0, width), np.float32), np.arange(len(expert), dtype=np.int32)
    bank.run(layer, native.Rows(x), expert, row, weights, slots, singles, np.zeros((0, width), np.int64))
    bank.run(layer, native.Rows(x), expert, row, weights, -1 - row, none, sums)
    return singles, sums


@pytest.mark.parametrize(
    "types",
    [
        ("Q8_0",) * 3,
        ("F32",) * 3,
        ("Q8_0", "F16", "F32"),
        ("F16", "Q8_0", "BF16"),
        ("Q4_0", "Q5_1", "Q4_1"),
        ("Q5_0", "Q4_1", "F16"),
        ("BF16", "Q4_0", "Q5_0"),
    ],
)
def test_experts_are_computed_from_the_bytes_of_the_file(tmp_path: Path, types: tuple[str, str, str]) -> None:
    gate, up, down = types
    path = write_model(tmp_path / "m.gguf", gate_type=gate, up_type=up, down_type=down, **SMALL)
    x = activations(3, 64)
    with open_bank(path) as bank, GgufFile.open(path) as gguf:
        singles, sums = run(bank, 1, x, [0, 3])
        expected = []
        for expert in (0, 3):
            roles = bank.layout.layers[1].roles
            parts = [gguf.tensors[role.tensor].data.reshape(4, -1)[expert] for role in roles]
            rows = twin.expert(tuple(parts), tuple(int(role.type) for role in roles), 32, x)
            expected.append(np.float32(0.5) * rows)
        np.testing.assert_array_equal(singles.view(np.uint32), np.concatenate(expected).view(np.uint32))
        np.testing.assert_array_equal(sums, sum(twin.to_fixed(rows) for rows in expected))


@pytest.mark.parametrize("types", [("Q8_0",) * 3, ("Q4_0", "Q5_1", "Q4_1"), ("F16", "Q8_0", "Q5_0")])
def test_experts_of_a_pack_are_those_of_the_model(tmp_path: Path, types: tuple[str, str, str]) -> None:
    gate, up, down = types
    path = write_model(tmp_path / "m.gguf", gate_type=gate, up_type=up, down_type=down, **SMALL)
    x = activations(3, 64)
    with open_bank(path) as bank, open_bank(pack_of(path, tmp_path / "p.gguf")) as packed:
        for found, expected in zip(run(packed, 1, x, [0, 3]), run(bank, 1, x, [0, 3]), strict=True):
            np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def test_experts_that_a_share_has_not_are_never_made_ready(model: Path, tmp_path: Path) -> None:
    there = np.array([[1, 0, 1, 0], [0, 0, 0, 1]], np.uint8)
    share = pack_of(model, tmp_path / "s.gguf", Share(number=1, count=2), there)
    x = activations(2, 64)
    with open_bank(share) as bank, open_bank(model) as whole:
        list(bank.prepare(0, np.array([0, 2])))
        list(bank.prepare(1, np.array([3])))
        np.testing.assert_array_equal(run(bank, 0, x, [0, 2])[1], run(whole, 0, x, [0, 2])[1])
        with pytest.raises(ExpertError, match="layer 1, expert 2: it is not in this share of the model"):
            list(bank.prepare(1, np.array([2, 3])))


@pytest.mark.parametrize("quantised", [True, False])
def test_rows_take_the_form_that_travels_in_the_layer(tmp_path: Path, quantised: bool) -> None:
    path = write_model(tmp_path / "m.gguf", up_type="Q8_0" if quantised else "F16", **SMALL)
    x = activations(2, 64)
    codes, scales = native.Rows(x).quantise()
    with open_bank(path) as bank:
        right, wrong = ((codes, scales, NO_FLOATS), (NO_CODES, NO_FLOATS, x))
        if not quantised:
            right, wrong = wrong, right
        assert refusals.rows_of(bank.layout, 0, *right).count == 2
        with pytest.raises(ExpertError, match=r"layer 0: activations are .* expected"):
            refusals.rows_of(bank.layout, 0, *wrong)
        narrow = tuple(array[:, : array.shape[1] // 2] for array in right)
        with pytest.raises(ExpertError, match="32 columns, 64 expected"):
            refusals.rows_of(bank.layout, 0, *(np.ascontiguousarray(array) for array in narrow))


def test_codes_that_are_no_activations_are_refused(model: Path) -> None:
    codes, scales = np.zeros((1, 64), np.int8), np.ones((1, 2), np.float32)
    with open_bank(model) as bank:
        for bad in (float("nan"), float("inf"), -1.0):
            with pytest.raises(ExpertError, match="scale"):
                refusals.rows_of(bank.layout, 0, codes, np.full_like(scales, bad), NO_FLOATS)
        with pytest.raises(ExpertError, match="-128"):
            refusals.rows_of(bank.layout, 0, np.full_like(codes, -128), scales, NO_FLOATS)


@pytest.mark.parametrize(
    ("layer", "experts", "words"),
    [
        (-1, [0], "layer -1: the model has layers 0 to 1"),
        (2, [0], "layer 2: the model has layers 0 to 1"),
        (0, [-1, 0], "the model has experts 0 to 3"),
        (0, [0, 4], "layer 0, expert 4: the model has experts 0 to 3"),
    ],
)
def test_what_the_model_does_not_have_is_refused_by_name(
    model: Path, layer: int, experts: list[int], words: str
) -> None:
    with open_bank(model) as bank:
        with pytest.raises(ExpertError, match=words):
            run(bank, layer, activations(1, 64), experts)
        with pytest.raises(ExpertError, match=words):
            list(bank.prepare(layer, np.array(experts)))


def test_a_dense_layer_has_no_experts(tmp_path: Path) -> None:
    path = write_model(tmp_path / "dense.gguf", dense_layers=1, ff_dense=64, **SMALL)
    with open_bank(path) as bank:
        list(bank.prepare(0, np.array([], np.int64)))
        for work in (
            lambda: run(bank, 0, activations(1, 64), [0]),
            lambda: refusals.rows_of(bank.layout, 0, NO_CODES, NO_FLOATS, activations(1, 64)),
            lambda: list(bank.prepare(0, np.array([2]))),
        ):
            with pytest.raises(ExpertError, match="layer 0: a dense layer, which has no experts"):
                work()
        run(bank, 1, activations(1, 64), [0])


def test_an_output_out_of_range_names_its_expert(model: Path) -> None:
    with open_bank(model) as bank, pytest.raises(ExpertError, match="layer 1, expert 2") as caught:
        run(bank, 1, activations(1, 64), [2, 3], weight=1e30)
    assert (caught.value.layer, caught.value.expert) == (1, 2)


def test_activations_that_are_not_finite_blame_no_expert(model: Path) -> None:
    x = activations(2, 64)
    x[1, 5] = np.nan
    with open_bank(model) as bank, pytest.raises(ExpertError) as caught:
        run(bank, 0, x, [0])
    assert caught.value.expert == -1


def test_preparing_takes_any_set_of_experts(model: Path) -> None:
    with open_bank(model) as bank:
        for experts in ([], [0], [0, 1, 2, 3], [3]):
            list(bank.prepare(1, np.array(experts, np.int64)))


# --- a file that changes under us ---------------------------------------------------------------------------------


def shrink(path: Path) -> None:
    os.truncate(path, 4096)


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"another model")
    os.replace(other, path)


@pytest.mark.parametrize("change", [shrink, touch, replace])
def test_a_changed_file_fails_the_work_and_names_the_expert(model: Path, change: Callable[[Path], None]) -> None:
    with open_bank(model) as bank:
        run(bank, 1, activations(1, 64), [1])
        change(model)
        for _ in range(2):  # it does not get better
            with pytest.raises(ExpertError, match=r"layer 1, expert 1: .*small\.gguf changed while in use: ") as caught:
                run(bank, 1, activations(1, 64), [1])
            assert caught.value.expert == 1
        with pytest.raises(ExpertError, match="expert 3"):
            list(bank.prepare(0, np.array([3])))


def test_pages_that_are_gone_do_not_end_the_process_and_are_not_forgotten(tmp_path: Path) -> None:
    path = tiny_model(tmp_path)
    content, times = path.read_bytes(), path.stat()
    with open_bank(path) as bank:
        os.truncate(path, 1 << 16)
        with pytest.raises(ExpertError, match="is 65536 now"):
            run(bank, 3, activations(1, 256), list(range(16)))
        path.write_bytes(content)  # as if nothing had been, but zeros stand where pages were missing
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(ExpertError, match=r"its bytes at offset \d+ cannot be read"):
            run(bank, 3, activations(1, 256), [0])


def test_a_removed_file_can_still_be_computed_from(model: Path) -> None:
    with open_bank(model) as bank:
        before = run(bank, 0, activations(1, 64), [0])[1]
        model.unlink()
        np.testing.assert_array_equal(run(bank, 0, activations(1, 64), [0])[1], before)
