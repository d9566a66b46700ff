"""A peer's GPU is tried before it says Hello, and that takes next to no time."""

from __future__ import annotations

from pathlib import Path

import pytest
from slot_trials import check_trial

from native import cuda

pytestmark = pytest.mark.gpu
LONGEST_S = 0.05


def test_a_trial_is_quick_and_leaves_nothing(device: cuda.Device, demo_model: Path) -> None:
    assert check_trial(device, demo_model) < LONGEST_S
