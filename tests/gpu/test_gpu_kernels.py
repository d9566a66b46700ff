"""Row dots and experts on a GPU: the processor's bits, for random weights of every type; and the same errors."""

from __future__ import annotations

import gpu_cases as cases
import pytest

from native import cuda
from protocol.quant_types import TensorType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

Q4_K, Q6_K, Q8_0, F16, F32 = (TensorType[name] for name in ("Q4_K", "Q6_K", "Q8_0", "F16", "F32"))
named = cases.named
ALIKE: list[cases.Types] = [(kind, kind, kind) for kind in cases.KINDS]


@pytest.mark.parametrize("seed", range(4))
def test_the_quantiser(device: cuda.Device, seed: int) -> None:
    cases.check_quantiser(device, seed)


@pytest.mark.parametrize("size", [1e-7, 0.01, 100.0])
@pytest.mark.parametrize("count", [1, 2, 8, 13, 64])
@pytest.mark.parametrize("kind", cases.KINDS, ids=named)
def test_row_dots(device: cuda.Device, kind: TensorType, count: int, size: float) -> None:
    for columns in cases.columns_of(kind):
        for rows in (1, 19, 515):
            cases.check_matmul(device, kind, columns, rows, count, size)


@pytest.mark.parametrize("types", [*ALIKE, *cases.MIXED], ids=named)
def test_experts(device: cuda.Device, types: cases.Types) -> None:
    for width, hidden in cases.sizes_of(types):
        cases.check_experts(device, types, width, hidden)


@pytest.mark.parametrize("types", [(Q4_K, Q4_K, Q6_K), (Q4_K, Q4_K, Q4_K), (Q8_0,) * 3, (F16,) * 3], ids=named)
def test_experts_of_real_geometry(device: cuda.Device, types: cases.Types) -> None:
    cases.check_experts(device, types, 2048, 768)


def test_an_expert_may_leave_and_come_back(device: cuda.Device) -> None:
    cases.check_residency(device)


@pytest.mark.parametrize("types", [(Q4_K, Q4_K, Q6_K), (Q8_0,) * 3, (F32,) * 3, (F16, Q4_K, Q8_0)], ids=named)
def test_the_lowest_entry_out_of_range_is_named(device: cuda.Device, types: cases.Types) -> None:
    cases.check_overflow(device, types)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("types", [(F32,) * 3, (F16, Q8_0, Q8_0), (F32, F32, Q8_0), (Q8_0, F16, F16)], ids=named)
def test_bad_activations_are_named_alike(device: cuda.Device, types: cases.Types, value: float) -> None:
    cases.check_bad_activations(device, types, value)


def test_damaged_weights_are_named_alike(device: cuda.Device) -> None:
    cases.check_damaged_weights(device)


def test_uploads_have_read_the_host_when_they_return(device: cuda.Device) -> None:
    cases.check_uploads(device, (64, 1 << 16, 1 << 24))
