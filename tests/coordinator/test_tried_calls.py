"""Trial calls: every part of one takes time, its process ends with the trial, and nobody is waited for in vain."""

from __future__ import annotations

import sys

import numpy as np
import psutil
import pytest

import native
from coordinator import tried_calls as trial
from coordinator.tried_calls import tried_calls
from protocol.errors import ConfigError

pytestmark = pytest.mark.timeout(60)

WIDTH, EXPERTS = 256, 8


@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_each_part_takes_time_and_zeros_are_added(quantised: bool, rows: int) -> None:
    before = set(psutil.Process().children())
    ids = np.array([[0, 5], [5, 7], [1, 2]], np.int32)[:rows]
    sums = np.full((rows, WIDTH), 7, np.int64)
    with tried_calls(WIDTH, EXPERTS, 100_000) as calls:
        for _ in range(3):
            activations = native.Rows(np.ones((rows, WIDTH), np.float32))
            calls.call(1, activations, quantised, ids, np.ones(ids.shape, np.float32), sums)
        times = (calls.send_s, calls.take_s, calls.apart_s)
        assert [len(one) for one in times] == [3, 3, 3]
        assert min(calls.send_s + calls.take_s) > 0
        assert min(calls.apart_s) >= 0
        calls.forget()
        assert not any(times)
    assert (sums == 7).all()
    assert set(psutil.Process().children()) == before


def test_a_process_that_does_not_start_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "WITHIN_S", 0.05)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(ConfigError, match="calls cannot be tried"), tried_calls(WIDTH, EXPERTS, 1):
        pass
