"""Opening the coordinator's device, here an emulated one, and filling its slots: how much is taken, what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from emulated_device import EmulatedDevice, emulated_device
from small_models import TEXT

import native
from coordinator.cli.logits_file import write_logits
from coordinator.dense import DenseModel
from coordinator.dense_cuda import CudaDense
from coordinator.devices import Devices, opened
from native import cuda
from peer_gpu.slots import GIB
from protocol.errors import ConfigError
from protocol.model import Model
from protocol.stock import Stock


@pytest.fixture
def path(small_model: Callable[[str], Path]) -> Path:
    return small_model("dense-first")


@pytest.fixture
def model(path: Path) -> Iterator[Model]:
    with Model.open(path) as model:
        yield model


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """A GPU with plenty of memory."""
    device = EmulatedDevice(memory=10 * GIB)
    monkeypatch.setattr(cuda, "open_device", lambda name: device)
    return device


def open_it(model: Model, name: str = "cuda:0", vram_gib: float | None = None) -> AbstractContextManager[Devices]:
    return opened(name, vram_gib, model, native.Pool(1), max_rows=8, kv="f16")


def filled(devices: Devices) -> int:
    """How many turns it took."""
    return sum(1 for _ in devices.fill())


def test_the_processor_needs_nothing_and_holds_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "open_device", None)
    with open_it(model, "cpu") as devices:
        assert isinstance(devices.dense, DenseModel)
        assert devices.slots is None
        assert not devices.own.any()
        assert filled(devices) == 0


def test_slots_are_filled_with_what_is_used_most(model: Model, device: EmulatedDevice) -> None:
    rank = np.arange(18, dtype=np.int32)[::-1].reshape(3, 6)
    room = 3 * Stock.of(model.layout).slot_bytes[2] / GIB
    pool = native.Pool(1)
    with opened("cuda:0", room, model, pool, max_rows=8, kv="f16", rank=rank) as devices:
        assert devices.slots is not None
        assert filled(devices) == 1
        assert np.argwhere(devices.slots.held).tolist() == [[2, 3], [2, 4], [2, 5]]


def test_everything_that_fits_is_filled_layer_by_layer(
    model: Model, device: EmulatedDevice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with open_it(model) as devices:
        assert isinstance(devices.dense, CudaDense)
        assert devices.slots is not None
        assert not devices.slots.held.any()
        assert filled(devices) == 2
        assert devices.slots.held.sum(axis=1).tolist() == [0, 6, 6]
        np.testing.assert_array_equal(devices.slots.held, devices.own)
        assert devices.slots.used == Stock.of(model.layout).bytes
    assert "device cuda:0: an emulated device" in caplog.text
    assert "cuda:0 holds 12 experts, " in caplog.text


def test_a_tenth_of_the_device_is_left_for_caches_and_one_gib_at_least(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = Stock.of(model.layout)
    for total, reserve in ((40 * GIB, 4 * GIB), (8 * GIB, GIB)):
        device = EmulatedDevice()
        monkeypatch.setattr(cuda, "open_device", lambda name, device=device: device)
        for free, experts in ((reserve - 1, 0), (reserve + stock.bytes // 2, 6), (reserve + stock.bytes, 12)):
            monkeypatch.setattr(device, "memory", lambda free=free, total=total: (free, total))
            with open_it(model) as devices:
                assert devices.own.sum() == experts


def test_a_share_of_every_layer_is_filled_where_not_all_fits(model: Model, device: EmulatedDevice) -> None:
    with open_it(model, vram_gib=Stock.of(model.layout).bytes / 2 / GIB) as devices:
        assert filled(devices) == 2
        assert devices.slots is not None
        assert devices.slots.held.tolist() == [[0] * 6, *[[1, 1, 1, 0, 0, 0]] * 2]


@pytest.mark.parametrize(("vram_gib", "said"), [(0.0, False), (1 / GIB, True)])
def test_without_room_for_an_expert_there_are_no_slots(
    model: Model, device: EmulatedDevice, caplog: pytest.LogCaptureFixture, vram_gib: float, said: bool
) -> None:
    with open_it(model, vram_gib=vram_gib) as devices:
        assert devices.slots is None
        assert filled(devices) == 0
    each = min(filter(None, Stock.of(model.layout).slot_bytes))
    warning = f"device cuda:0: no expert fits: one takes {each} bytes, and 1 are for them"
    assert (warning in caplog.text) == said, "0 is a wish"


def refused(model: Model, name: str = "cuda:0", vram_gib: float | None = None) -> str:
    with pytest.raises(ConfigError) as caught, open_it(model, name, vram_gib) as devices:
        filled(devices)
    return str(caught.value)


def test_more_memory_than_is_free_is_refused_with_both_numbers(
    model: Model, device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "memory", lambda: (4096, GIB))
    found = refused(model, vram_gib=10.5)
    assert found == "device cuda:0: 10.5 GiB of experts were asked for, 0.00 of its 1.00 GiB are free"


def test_a_device_that_is_not_there_is_a_bad_setting(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "open_device", emulated_device)
    assert refused(model, "cuda:7") == "device cuda:7: there are 1 here, cuda:0 to cuda:0 are expected"


def test_an_expert_that_cannot_be_copied_is_named(model: Model, device: EmulatedDevice) -> None:
    with open_it(model) as devices:
        turns = devices.fill()
        next(turns)
        device.room = 1000
        with pytest.raises(ConfigError, match=r"^filling cuda:0: layer 2, expert 0: .*no room for \d+ bytes"):
            next(turns)


@pytest.mark.parametrize(("share", "networks"), [(0.0, {2}), (0.5, {3, 4, 5, 6}), (1.0, {6})])
def test_logits_are_the_same_wherever_experts_lie(
    path: Path, model: Model, device: EmulatedDevice, tmp_path: Path, share: float, networks: set[int]
) -> None:
    found = []
    for name, vram_gib in (("cpu", None), ("cuda:0", share * Stock.of(model.layout).bytes / GIB)):
        out = tmp_path / f"{name[:4]}.npy"
        write_logits(path, TEXT[:5], str(out), threads=1, kv="f16", chunk=4, device=name, vram_gib=vram_gib)
        found.append(np.load(out).tobytes())
    assert found[0] == found[1]
    assert sum(kernel.startswith("widen") for kernel in device.launched) in networks  # in two steps, one layer is dense
