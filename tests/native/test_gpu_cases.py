"""The comparisons that tests/gpu makes on a GPU, some of them, on the emulated device."""

from __future__ import annotations

import gpu_cases as cases
import numpy as np
import pytest
from emulated_device import EmulatedDevice, emulated_device

from protocol.quant_types import TensorType

Q4_K, Q8_0, F16 = TensorType.Q4_K, TensorType.Q8_0, TensorType.F16


@pytest.fixture
def device() -> EmulatedDevice:
    return emulated_device()


def test_the_quantiser(device: EmulatedDevice) -> None:
    cases.check_quantiser(device, 0)


@pytest.mark.parametrize("kind", cases.KINDS, ids=lambda kind: kind.name)
def test_row_dots(device: EmulatedDevice, kind: TensorType) -> None:
    cases.check_matmul(device, kind, cases.columns_of(kind)[1], rows=11, count=3, size=100.0)


@pytest.mark.parametrize("types", [(Q8_0, TensorType.Q5_1, Q8_0), (F16, TensorType.F32, TensorType.Q4_0)])
def test_experts(device: EmulatedDevice, types: cases.Types) -> None:
    cases.check_experts(device, types, 96, 64)


def test_an_expert_may_leave_and_come_back(device: EmulatedDevice) -> None:
    cases.check_residency(device)


@pytest.mark.parametrize("types", [(Q8_0,) * 3, (F16,) * 3])
def test_the_lowest_entry_out_of_range_is_named(device: EmulatedDevice, types: cases.Types) -> None:
    cases.check_overflow(device, types)


@pytest.mark.parametrize("types", [(F16,) * 3, (F16, Q8_0, Q8_0)])
def test_bad_activations_are_named_alike(device: EmulatedDevice, types: cases.Types) -> None:
    cases.check_bad_activations(device, types, float("nan"))


def test_damaged_weights_are_named_alike(device: EmulatedDevice) -> None:
    cases.check_damaged_weights(device)


def test_uploads_have_read_the_host_when_they_return(device: EmulatedDevice) -> None:
    cases.check_uploads(device)


def test_a_wrong_bit_is_noticed(device: EmulatedDevice) -> None:
    layer = cases.RandomLayer(device, (Q8_0,) * 3, 96, 64)
    rng = np.random.default_rng(1)
    work = cases.routed(rng, layer.EXPERTS, 3, 2, 0.5)
    x = cases.activations(rng, 3, 96)
    layer.check(x, work)
    layer.data[2].reshape(layer.EXPERTS, -1)[work.expert[0], 2] ^= 1  # a code, on the processor alone
    with pytest.raises(AssertionError):
        layer.check(x, work)
