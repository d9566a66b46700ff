"""Launches that are recorded when they come again."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import emulated_device

from native.cuda.device import Array, Device, Replays, uploaded


def adder(device: Device, x: Array, y: Array) -> None:
    device.launch("add", (1, 1, 1), 32, x, y, np.int64(4))


def test_the_second_time_is_recorded_and_every_time_is_done() -> None:
    device = emulated_device()
    x, y = uploaded(device, np.zeros(4, np.float32)), uploaded(device, np.ones(4, np.float32))
    replays = Replays(device)
    for times in range(1, 5):
        replays.run("key", lambda: adder(device, x, y))
        assert device.download(x).tolist() == [times] * 4
        assert len(device.recorded) == (times > 1)


def test_the_first_are_forgotten_when_there_are_too_many() -> None:
    device = emulated_device()
    x, y = uploaded(device, np.zeros(4, np.float32)), uploaded(device, np.ones(4, np.float32))
    replays = Replays(device, limit=2)
    for key in ("a", "b", "a", "b", "c", "b", "a", "a"):
        replays.run(key, lambda: adder(device, x, y))
    assert device.download(x).tolist() == [8] * 4
    assert len(device.recorded) == 3  # a, b, and a again


def test_another_work_under_the_same_key_is_a_fault_that_an_emulated_device_finds() -> None:
    device = emulated_device()
    x, y = (uploaded(device, np.zeros(4, np.float32)) for _ in range(2))
    replays = Replays(device)
    for _ in range(2):
        replays.run("key", lambda: adder(device, x, y))
    with pytest.raises(AssertionError, match="not the work that it stands for"):
        replays.run("key", lambda: adder(device, y, x))
