"""Experts in slots: the bits and the words of a bank, room, and residency in two phases."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from message_examples import run_experts
from moe_models import write_model
from open_bank import activations, open_bank
from packs import pack_of

import native
from native import cuda
from peer_gpu import slots as slots_module
from peer_gpu.runner import SlotRunner
from peer_gpu.slots import GIB, RESERVE, ExpertSlots, room_on, warn_if_none_fits
from protocol.errors import ConfigError, ExpertError, RoomError
from protocol.holder.answer import answer
from protocol.messages import U8, RunExperts, Sums, WorkFailed
from protocol.model import Model
from protocol.pack import Share

SMALL = {"layers": 2, "experts": 4, "experts_used": 2, "embd": 64, "ff_exp": 32, "vocab": 300, "heads": 2}
SHAPE = (2, 4)
ALL = np.ones(SHAPE, np.uint8)
WITHIN_S = 20.0


class WatchedDevice(EmulatedDevice):
    """Remembers what was asked for; `finish` waits while the test wants it to, as for a kernel that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.finishing = threading.Event()

    def finish(self) -> None:
        self.finishing.set()
        assert self.may_finish.wait(WITHIN_S)


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small file of this test's own, which it may damage."""
    return write_model(tmp_path / "small.gguf", **SMALL)


@pytest.fixture
def model(path: Path) -> Iterator[Model]:
    with Model.open(path) as model:
        yield model


def held(*pairs: tuple[int, int]) -> U8:
    made = np.zeros(SHAPE, np.uint8)
    for layer, expert in pairs:
        made[layer, expert] = 1
    return made


def size(model: Model) -> int:
    """Of one expert."""
    _, layer = next(model.layout.with_experts())
    return layer.slot_bytes


def work(rows: int, layer: int, pairs: list[tuple[int, int]], quantised: bool = True, **changes: Any) -> RunExperts:
    """Work for (expert, row) pairs."""
    x = activations(rows, 64)
    codes, scales = native.Rows(x).quantise()
    none = np.empty((0, 0), np.float32)
    forms = (
        {"codes": codes, "scales": scales}
        if quantised
        else {"codes": none.astype(np.int8), "scales": none, "values": x}
    )
    entries = {
        "entry_expert": np.array([expert for expert, _ in pairs], np.int32),
        "entry_row": np.array([row for _, row in pairs], np.int32),
        "entry_weight": np.linspace(0.1, 0.9, len(pairs), dtype=np.float32),
    }
    return run_experts(rows, layer=layer, **(forms | entries | changes))


PAIRS = [(0, 0), (0, 2), (1, 0), (1, 1), (3, 2), (3, 3)]
"""Rows with one entry and rows with more."""


@pytest.mark.parametrize(
    "types",
    [("Q8_0",) * 3, ("F32",) * 3, ("Q8_0", "F16", "F32"), ("F16", "Q8_0", "BF16"), ("Q4_0", "Q5_1", "Q4_1")],
)
@pytest.mark.parametrize("pairs", [PAIRS, [(2, 0)]])
def test_an_answer_from_slots_is_that_of_a_bank(
    tmp_path: Path, device: EmulatedDevice, types: tuple[str, str, str], pairs: list[tuple[int, int]]
) -> None:
    gate, up, down = types
    path = write_model(tmp_path / "m.gguf", gate_type=gate, up_type=up, down_type=down, **SMALL)
    with Model.open(path) as model, ExpertSlots(device, model, GIB) as slots, open_bank(path) as bank:
        for layer in (0, 1):
            slots.prepare(layer, [0, 1, 2, 3])
        runner = SlotRunner(device, slots)
        quantised = not {"F32", "F16", "BF16"} & {gate, up}
        for layer in (1, 0, 1):  # nothing of one call is left for the next
            message = work(1 if len(pairs) == 1 else 4, layer, pairs, quantised)
            found, expected = answer(message, runner, ALL), answer(message, bank, ALL)
            assert isinstance(found, Sums), found
            assert isinstance(expected, Sums), expected
            np.testing.assert_array_equal(found.single.view(np.uint32), expected.single.view(np.uint32))
            np.testing.assert_array_equal(found.sum48, expected.sum48)
            np.testing.assert_array_equal(found.sum64, expected.sum64)


@pytest.mark.parametrize("types", [("Q8_0",) * 3, ("Q4_0", "Q5_1", "Q4_1")])
def test_packed_experts_are_unpacked_on_the_way(
    tmp_path: Path, device: EmulatedDevice, types: tuple[str, str, str]
) -> None:
    gate, up, down = types
    path = write_model(tmp_path / "m.gguf", gate_type=gate, up_type=up, down_type=down, **SMALL)
    share = pack_of(path, tmp_path / "s.gguf", Share(number=1, count=2), held((0, 1), (0, 2), (1, 1), (1, 3)))
    with Model.open(share) as model, ExpertSlots(device, model, GIB) as slots, open_bank(path) as bank:
        slots.prepare(1, [1, 3])
        with pytest.raises(ExpertError, match="layer 1, expert 0: it is not in this share of the model"):
            slots.prepare(1, [0, 1])
        message = work(2, 1, [(1, 0), (3, 0), (3, 1)])
        found, expected = answer(message, SlotRunner(device, slots), ALL), answer(message, bank, ALL)
        assert isinstance(found, Sums), found
        assert isinstance(expected, Sums), expected
        np.testing.assert_array_equal(found.single.view(np.uint32), expected.single.view(np.uint32))
        np.testing.assert_array_equal(found.sum48, expected.sum48)


@pytest.mark.parametrize(
    "wrong",
    [
        work(1, 1, [(2, 0)], quantised=False),
        work(1, 1, [(2, 0)], codes=np.full((1, 64), -128, np.int8)),
        work(1, 1, [(2, 0)], entry_weight=np.full(1, 1e30, np.float32)),
        work(1, 1, [(1, 0), (2, 0)], entry_weight=np.array([1, np.nan], np.float32)),
        work(1, 1, [(2, 0)], codes=np.zeros((1, 32), np.int8), scales=np.zeros((1, 1), np.float32)),
    ],
)
def test_what_cannot_be_computed_is_told_in_the_words_of_a_bank(
    path: Path, model: Model, device: EmulatedDevice, wrong: RunExperts
) -> None:
    with ExpertSlots(device, model, GIB) as slots, open_bank(path) as bank:
        slots.prepare(1, [0, 1, 2, 3])
        runner = SlotRunner(device, slots)
        found, expected = answer(wrong, runner, ALL), answer(wrong, bank, ALL)
        assert isinstance(found, WorkFailed)
        assert isinstance(expected, WorkFailed)
        assert (found.reason, found.expert) == (expected.reason, expected.expert)
        assert isinstance(answer(work(1, 1, [(2, 0)]), runner, ALL), Sums), "the next call is another one"


def test_room_is_counted_in_slots_and_never_exceeded(model: Model, device: EmulatedDevice) -> None:
    each = size(model)
    with ExpertSlots(device, model, 3 * each + each // 2) as slots:
        slots.prepare(0, [1, 2])
        assert (slots.used, int(slots.held.sum())) == (2 * each, 2)
        slots.prepare(0, [1])  # is there
        reason = f"layer 1, expert 2: no room for its {each} bytes: {2 * each} of {slots.limit} are used on cuda:0"
        with pytest.raises(ExpertError, match=f"^{reason}$"):
            slots.prepare(1, [0, 2])
        np.testing.assert_array_equal(slots.held, held((0, 1), (0, 2)))
        slots.keep(held((0, 2), (1, 1)))  # what is not there is no wish
        assert slots.used == each
        slots.prepare(1, [0, 2])
        np.testing.assert_array_equal(slots.held, held((0, 2), (1, 0), (1, 2)))
    assert slots.used == 0


def test_memory_is_taken_in_pieces_that_are_larger_than_a_slot(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(EmulatedDevice):
        def empty(self, shape: tuple[int, ...], dtype: Any) -> cuda.Array:
            if dtype == np.uint8:
                taken.append(shape[0])
            return super().empty(shape, dtype)

    taken: list[int] = []
    each = size(model)
    monkeypatch.setattr(slots_module, "TOGETHER", 3 * each)
    with ExpertSlots(Counting(), model, 7 * each) as slots:
        for layer, experts in ((0, [0, 1]), (0, [2]), (0, [3]), (1, [0, 1, 2])):
            slots.prepare(layer, experts)
        slots.keep(held((0, 0)))
        slots.prepare(1, [0])
    pieces = [3, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1]  # the last piece is what the limit leaves, and no larger than a slot
    assert taken == [each * count for count in pieces]


def test_a_device_that_is_full_before_the_limit_says_so(model: Model) -> None:
    class Full(EmulatedDevice):
        def empty(self, shape: tuple[int, ...], dtype: Any) -> cuda.Array:
            if dtype == np.uint8:
                raise cuda.DeviceError("device cuda:0: no room for 9 bytes; 8 of 8 bytes are free")
            return super().empty(shape, dtype)

    with ExpertSlots(Full(), model, GIB) as slots:
        with pytest.raises(ExpertError, match=r"layer 1, expert 2: device cuda:0: no room for 9 bytes"):
            slots.prepare(1, [2])
        assert (slots.used, slots.held.any()) == (0, False)


def test_the_set_in_force_is_kept_beside_the_new_one_if_there_is_room(model: Model, device: EmulatedDevice) -> None:
    each = size(model)
    before, after = held((0, 0), (0, 1)), held((0, 1), (1, 3))
    with ExpertSlots(device, model, 3 * each) as slots:
        slots.prepare(0, [0, 1, 2])
        slots.make_room(after, before)
        np.testing.assert_array_equal(slots.held, before)
        slots.prepare(1, [3])
        slots.make_room(after, None)
        np.testing.assert_array_equal(slots.held, after)


def test_without_room_for_both_what_the_new_set_has_is_kept(model: Model, device: EmulatedDevice) -> None:
    each = size(model)
    with ExpertSlots(device, model, 2 * each) as slots:
        slots.prepare(0, [0, 1])
        in_force = slots.held
        slots.make_room(held((0, 1), (1, 3)), in_force)
        np.testing.assert_array_equal(slots.held, held((0, 1)))
        slots.make_room(held((1, 2)), in_force)  # of which only one is left, and the coordinator knows
        np.testing.assert_array_equal(slots.held, held((0, 1)))
        reason = f"^{3 * each} bytes of experts are {each} more than the {2 * each} that there is room for on cuda:0$"
        with pytest.raises(RoomError, match=reason):
            slots.make_room(held((1, 1), (1, 2), (1, 3)), None)
        np.testing.assert_array_equal(slots.held, held((0, 1)))


@pytest.mark.parametrize(
    ("layer", "experts", "reason"),
    [
        (2, [0], "layer 2: the model has layers 0 to 1"),
        (0, [4], "layer 0, expert 4: the model has experts 0 to 3"),
        (0, [-1, 2], "the model has experts 0 to 3"),
    ],
)
def test_experts_that_do_not_exist(
    model: Model, device: EmulatedDevice, layer: int, experts: list[int], reason: str
) -> None:
    with ExpertSlots(device, model, GIB) as slots, pytest.raises(ExpertError, match=reason):
        slots.prepare(layer, experts)


def test_an_expert_that_is_not_there_is_not_run(model: Model, device: EmulatedDevice) -> None:
    with ExpertSlots(device, model, GIB) as slots:
        slots.prepare(1, [0, 2])
        failed = answer(work(1, 1, [(0, 0), (1, 0), (2, 0)]), SlotRunner(device, slots), ALL)
        assert isinstance(failed, WorkFailed)
        assert (failed.expert, failed.reason) == (1, "layer 1, expert 1: not held on cuda:0")


def test_an_eviction_shows_before_memory_is_given_up(model: Model) -> None:
    device = WatchedDevice()
    with ExpertSlots(device, model, GIB) as slots:
        slots.prepare(0, [0, 1])
        device.may_finish.clear()
        device.finishing.clear()
        evicting = threading.Thread(target=slots.keep, args=[held((0, 1))])
        evicting.start()
        assert device.finishing.wait(WITHIN_S)
        assert (slots.held[0, 0], slots.used) == (0, 2 * size(model)), "a call that was launched may read it"
        assert isinstance(answer(work(1, 0, [(0, 0)]), SlotRunner(device, slots), ALL), WorkFailed)
        assert isinstance(answer(work(1, 0, [(1, 0)]), SlotRunner(device, slots), ALL), Sums)
        device.may_finish.set()
        evicting.join(WITHIN_S)
        assert slots.used == size(model)


def test_an_admission_shows_when_the_copy_is_there(model: Model) -> None:
    device = WatchedDevice()
    with ExpertSlots(device, model, GIB) as slots:
        device.may_finish.clear()
        device.finishing.clear()
        filling = threading.Thread(target=slots.prepare, args=[0, [3]])
        filling.start()
        assert device.finishing.wait(WITHIN_S)
        assert not slots.held.any()
        device.may_finish.set()
        filling.join(WITHIN_S)
        assert slots.held[0, 3] == 1


def test_a_file_that_changes_spoils_what_is_to_come_and_not_what_is_there(
    path: Path, model: Model, device: EmulatedDevice
) -> None:
    with ExpertSlots(device, model, GIB) as slots:
        slots.prepare(1, [1])
        runner, message = SlotRunner(device, slots), work(1, 1, [(1, 0)])
        before = answer(message, runner, ALL)
        os.truncate(path, 4096)
        with pytest.raises(ExpertError, match=r"layer 1, expert 2: .*small\.gguf changed while in use: its size"):
            slots.prepare(1, [2])
        slots.prepare(1, [1])
        after = answer(message, runner, ALL)
        assert isinstance(before, Sums)
        assert isinstance(after, Sums)
        np.testing.assert_array_equal(before.single, after.single)
        np.testing.assert_array_equal(slots.held, held((1, 1)))


@pytest.mark.parametrize(
    ("total", "free", "gib", "room"),
    [
        (24 * GIB, 20 * GIB, None, 20 * GIB - 24 * GIB // 20),
        (4 * GIB, 4 * GIB, None, 4 * GIB - RESERVE),
        (4 * GIB, RESERVE - 1, None, 0),
        (4 * GIB, 2 * GIB, 1.5, 3 * GIB // 2),
    ],
)
def test_room(model: Model, total: int, free: int, gib: float | None, room: int) -> None:
    assert room_on(sized(free, total), gib, replace(model.layout, experts=10**9)) == room


@pytest.mark.parametrize("gib", [None, 100.0])
def test_room_for_more_than_the_model_has_is_not_taken(model: Model, gib: float | None) -> None:
    everything = sum(layer.slot_bytes for _, layer in model.layout.with_experts()) * model.layout.experts
    assert room_on(sized(2 * GIB, 2 * GIB), gib, model.layout) == everything


def test_room_that_is_not_free(model: Model) -> None:
    with pytest.raises(ConfigError) as caught:
        room_on(sized(GIB, 2 * GIB), 1.5, replace(model.layout, experts=10**9))
    assert str(caught.value) == "device cuda:0: 1.5 GiB of experts were asked for, 1.00 of its 2.00 GiB are free"


def sized(free: int, total: int) -> EmulatedDevice:
    class Sized(EmulatedDevice):
        def memory(self) -> tuple[int, int]:
            return free, total

    return Sized()


def test_it_is_said_if_not_even_one_expert_fits(
    model: Model, device: EmulatedDevice, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_none_fits(device, size(model), model.layout)
    assert not caplog.records
    warn_if_none_fits(device, size(model) - 1, model.layout)
    assert f"device cuda:0: no expert fits: one takes {size(model)} bytes, and {size(model) - 1} are" in caplog.text
