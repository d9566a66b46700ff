"""Opening the coordinator's device, and filling its slots: what is refused, how much is taken, what is left."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import native
from coordinator.dense import DenseModel
from coordinator.devices import GIB, LEAST_RESERVE, Devices, opened, slots_limit
from coordinator.placement import Stock
from native import cuda
from protocol.errors import ConfigError, ExpertError
from protocol.model import Model


class FakeDevice:
    """Memory in numbers only."""

    name = "cuda:0"
    description = "a device of a test"

    def __init__(self, free: int, total: int) -> None:
        self.free, self.total = free, total

    def use(self) -> None: ...

    def memory(self) -> tuple[int, int]:
        return self.free, self.total


class FakeSlots:
    """Notes what it is filled with."""

    def __init__(self, device: FakeDevice, model: Model, limit: int) -> None:
        self.limit, self.used, self.closed = limit, 0, False
        self.prepared: dict[int, list[int]] = {}
        self.fails_at = -1

    def prepare(self, layer: int, experts: Any) -> None:
        if layer == self.fails_at:
            raise ExpertError(layer, int(experts[0]), "no room")
        self.prepared[layer] = experts.tolist()

    def close(self) -> None:
        self.closed = True


def device_of(free: int, total: int) -> Any:
    return FakeDevice(free, total)


# --- how much ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [
        (100 * GIB, 140 * GIB, 86 * GIB),  # a tenth of it is left
        (5 * GIB, 8 * GIB, 4 * GIB),  # one GiB at least
        (LEAST_RESERVE // 2, 8 * GIB, 0),
        (139 * GIB, 140 * GIB, 100 * GIB),  # no more than there are experts
    ],
)
def test_unless_told_experts_take_what_fits_beside_the_caches(free: int, total: int, expected: int) -> None:
    assert slots_limit(None, 100 * GIB, device_of(free, total)) == expected


def test_what_was_told_is_taken_and_no_more() -> None:
    device = device_of(5 * GIB, 8 * GIB)
    assert slots_limit(0.0, 100 * GIB, device) == 0
    assert slots_limit(4.5, 100 * GIB, device) == 4.5 * GIB
    assert slots_limit(4096.0, 3 * GIB, device) == 3 * GIB


def test_more_than_is_free_is_refused_with_both_numbers() -> None:
    message = (
        "device cuda:0: 5.25 GiB of experts are to lie there, and beside the dense weights 5.00 of 8.00 GiB are free; "
        "vram_gib says how much experts may take"
    )
    with pytest.raises(ConfigError) as caught:
        slots_limit(5.25, 100 * GIB, device_of(5 * GIB, 8 * GIB))
    assert str(caught.value) == message


# --- opening ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> Iterator[Model]:
    with Model.open(small_model("dense-first")) as model:
        yield model


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU with plenty of memory, and what is made of it."""
    fake = SimpleNamespace(device=FakeDevice(10 * GIB, 20 * GIB), made=[])

    def slots(*arguments: Any) -> FakeSlots:
        fake.made.append(FakeSlots(*arguments))
        return fake.made[-1]

    monkeypatch.setattr(cuda, "open_device", lambda name: fake.device)
    for name, content in (
        ("peer_gpu.slots", {"ExpertSlots": slots}),
        ("coordinator.dense_cuda", {"CudaDense": list_of}),
    ):
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return fake


def list_of(*arguments: Any) -> list[Any]:
    return list(arguments)


def open_it(model: Model, name: str = "cuda:0", vram_gib: float | None = None) -> Any:
    return opened(name, vram_gib, model, native.Pool(1), max_rows=8, kv="f16")


def test_the_processor_needs_nothing_and_holds_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "open_device", None)
    with open_it(model, "cpu") as devices:
        assert isinstance(devices.dense, DenseModel)
        assert devices.slots is None
        assert not devices.own.any()
        assert list(devices.fill()) == []


def test_everything_that_fits_is_filled_layer_by_layer(
    model: Model, fake: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with open_it(model) as devices:
        assert list(devices.dense) == [model, fake.device, 8, "f16"]
        [slots] = fake.made
        assert slots.limit == Stock.of(model.layout).bytes
        assert not slots.prepared
        turns = sum(1 for _ in devices.fill())
        layers = [number for number, _ in model.layout.with_experts()]
        assert turns == len(layers)
        assert slots.prepared == {layer: list(range(model.layout.experts)) for layer in layers}
    assert slots.closed
    assert f"cuda:0 holds {len(layers) * model.layout.experts} experts" in caplog.text


def test_a_share_of_every_layer_is_filled_where_not_all_fits(model: Model, fake: SimpleNamespace) -> None:
    half = Stock.of(model.layout).bytes / 2 / GIB
    with open_it(model, vram_gib=half) as devices:
        list(devices.fill())
        [slots] = fake.made
        assert {len(experts) for experts in slots.prepared.values()} == {model.layout.experts // 2}
        np.testing.assert_array_equal(devices.own.sum(axis=1), [0, 3, 3])


def test_without_room_for_an_expert_there_are_no_slots(model: Model, fake: SimpleNamespace) -> None:
    for vram_gib in (0.0, 1 / GIB):
        with open_it(model, vram_gib=vram_gib) as devices:
            assert devices.slots is None
            assert list(devices.fill()) == []
    assert not fake.made


def test_a_device_that_is_not_there_is_a_bad_setting(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise cuda.DeviceError(f"device {name}: there are 1 here")

    monkeypatch.setattr(cuda, "open_device", refuse)
    with pytest.raises(ConfigError, match=r"^device cuda:7: there are 1 here$"), open_it(model, "cuda:7"):
        pass


def test_an_expert_that_cannot_be_copied_is_named(model: Model, fake: SimpleNamespace) -> None:
    with open_it(model) as devices:
        assert isinstance(devices, Devices)
        fake.made[0].fails_at = 2
        with pytest.raises(ConfigError, match=r"^device cuda:0: layer 2, expert 0: no room$"):
            list(devices.fill())
