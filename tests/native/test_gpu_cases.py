"""The comparisons that tests/gpu makes on a GPU, fewer of them, on the emulated device: the kernels' text is right."""

from __future__ import annotations

import gpu_cases as cases
import numpy as np
import pytest
from emulated_device import EmulatedDevice, emulated_device

from native.cuda.device import uploaded
from native.cuda.experts import TOGETHER, tiles_of
from protocol.quant_types import TensorType

Q4_K, Q8_0, F16 = TensorType.Q4_K, TensorType.Q8_0, TensorType.F16
named = cases.named


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return emulated_device()


def test_the_quantiser(device: EmulatedDevice) -> None:
    cases.check_quantiser(device, 0)


@pytest.mark.parametrize(("count", "size"), [(1, 100.0), (9, 0.01)])
@pytest.mark.parametrize("kind", cases.KINDS, ids=named)
def test_row_dots(device: EmulatedDevice, kind: TensorType, count: int, size: float) -> None:
    for columns in cases.columns_of(kind):
        cases.check_matmul(device, kind, columns, 19, count, size)


@pytest.mark.parametrize("types", cases.MIXED, ids=named)
def test_experts(device: EmulatedDevice, types: cases.Types) -> None:
    cases.check_experts(device, types, *cases.sizes_of(types)[0], seeds=[0])


def test_experts_of_rows_that_end_in_a_short_block(device: EmulatedDevice) -> None:
    cases.check_experts(device, (Q8_0, TensorType.Q5_1, Q8_0), 288, 96, seeds=[1])


def test_an_expert_may_leave_and_come_back(device: EmulatedDevice) -> None:
    cases.check_residency(device)


@pytest.mark.parametrize("types", [(Q8_0,) * 3, (F16,) * 3], ids=named)
def test_the_lowest_entry_out_of_range_is_named(device: EmulatedDevice, types: cases.Types) -> None:
    cases.check_overflow(device, types)


@pytest.mark.parametrize("types", [(F16,) * 3, (F16, Q8_0, Q8_0)], ids=named)
def test_bad_activations_are_named_alike(device: EmulatedDevice, types: cases.Types) -> None:
    cases.check_bad_activations(device, types, float("nan"))


def test_damaged_weights_are_named_alike(device: EmulatedDevice) -> None:
    cases.check_damaged_weights(device)


def test_uploads_have_read_the_host_when_they_return(device: EmulatedDevice) -> None:
    cases.check_uploads(device, (64, 1 << 12))


def test_a_wrong_bit_is_noticed(device: EmulatedDevice) -> None:
    layer = cases.RandomLayer(device, (Q8_0,) * 3, 96, 64)
    rng = np.random.default_rng(1)
    work = cases.routed(rng, layer.EXPERTS, 3, 2, 0.5)
    x = cases.activations(rng, 3, 96)
    layer.check(x, work)
    layer.data[2].reshape(layer.EXPERTS, -1)[work.expert[0], 2] ^= 1  # a code, on the processor alone
    with pytest.raises(AssertionError):
        layer.check(x, work)


def test_every_type_is_at_both_ends_of_an_expert() -> None:
    """So that every kernel of experts is compared; each kind of work has tiles of one entry, or of several."""
    assert {kind for gate, up, _ in cases.MIXED for kind in (gate, up)} == set(cases.KINDS)
    assert {down for _, _, down in cases.MIXED} == set(cases.KINDS)


def test_tiles_cover_every_entry_once() -> None:
    rng = np.random.default_rng(9)
    for _ in range(50):
        expert = np.sort(rng.integers(0, 6, rng.integers(1, 60))).astype(np.int32)
        tiles = tiles_of(expert)
        covered = [(e, i) for e, first, count in tiles.T.tolist() for i in range(first, first + count)]
        assert covered == list(zip(expert.tolist(), range(len(expert)), strict=True))
        assert tiles[2].max() <= TOGETHER


def test_kernels_refuse_what_they_do_not_declare(device: EmulatedDevice) -> None:
    x = uploaded(device, np.zeros(4, np.float32))
    with pytest.raises(TypeError, match="add: long long expected"):
        device.launch("add", (1, 1, 1), 32, x, x, np.int32(4))
    with pytest.raises(TypeError, match=r"add: float \* expected, found int64"):
        device.launch("add", (1, 1, 1), 32, x, uploaded(device, np.zeros(4, np.int64)), np.int64(4))
