"""How much memory a worker says it has for experts: its fair share of what is free, less what others need."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_worker import opening
from expert_worker.opening import memory_share
from expert_worker.siblings import ALONE, Siblings
from expert_worker.sources.choice import GIB, Asked
from protocol.host_memory import HostMemory
from protocol.model import Model

THREE = Siblings(family=1, here=3, part=None)


@pytest.mark.parametrize(
    ("asked", "siblings", "expected"),
    [
        (Asked(), ALONE, 36 * GIB),
        (Asked(), THREE, 12 * GIB),
        (Asked(headroom=10 * GIB), ALONE, 30 * GIB),
        (Asked(headroom=50 * GIB), ALONE, 0),
    ],
)
def test_a_fair_share_of_what_is_free(
    asked: Asked, siblings: Siblings, expected: int, demo_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = HostMemory(total=64 * GIB, available=40 * GIB, bound_by=None)
    monkeypatch.setattr(opening, "host_memory", lambda: found)
    with Model.open(demo_model) as model:
        assert memory_share(model, asked, siblings) == expected


def test_where_memory_cannot_be_read_nobody_knows(demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = HostMemory(total=0, available=0, bound_by=None, unknown="no /proc")
    monkeypatch.setattr(opening, "host_memory", lambda: found)
    with Model.open(demo_model) as model:
        assert memory_share(model, Asked()) == -1
