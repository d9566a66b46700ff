"""What workers of one machine plan with: never the same bytes, and nothing rather than failing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from expert_worker import memory_plan
from expert_worker.copy_plan import Budget
from expert_worker.memory_plan import SLOT_SHARE, MemoryPlanner
from expert_worker.siblings import Siblings
from protocol import host_ledger, host_memory
from protocol.errors import RoomError

GIB = 1 << 30
ONE = 1 << 20


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 8 GiB available, and a ledger of its own."""

    def read(*_: object) -> host_memory.HostMemory:
        sizes = {"total": 10 * GIB, "available": 8 * GIB, "machine_total": 10 * GIB, "machine_available": 8 * GIB}
        return host_memory.HostMemory(bound_by=None, **sizes)

    monkeypatch.setattr(host_ledger, "FOLDERS", (tmp_path,))
    monkeypatch.setattr(host_ledger, "host_memory", read)
    monkeypatch.setattr(memory_plan, "host_memory", read)


def copied(planner: MemoryPlanner, experts: int, size: int = ONE) -> int:
    return planner.plan((size,), np.ones((1, experts), np.uint8), None, 0).bytes


def test_slots_take_three_quarters_of_what_others_have_not_planned() -> None:
    first, second = MemoryPlanner("auto", GIB), MemoryPlanner("auto", GIB)
    taken = first.slots(64 * GIB)
    assert taken == int((7 * GIB - GIB // 4) * SLOT_SHARE)
    left = 7 * GIB - taken
    assert second.slots(64 * GIB) == int((left - left // 16) * SLOT_SHARE)
    first.touched(taken)  # and shows in readings from now on
    assert MemoryPlanner("auto", GIB).slots(64 * GIB) > GIB


@pytest.mark.parametrize(("budget", "slots"), [(0, 0), (GIB, GIB), (7 * GIB, 7 * GIB), (9 * GIB, 7 * GIB - GIB // 4)])
def test_slots_of_a_given_size_are_lowered_to_what_fits(budget: int, slots: int) -> None:
    assert MemoryPlanner(budget, GIB).slots(64 * GIB) == slots


def test_copies_and_slots_are_promised_in_one_account() -> None:
    copies, slots = MemoryPlanner(None, GIB), MemoryPlanner(6 * GIB, GIB)
    assert copied(copies, 3 * 1024) == 3 * GIB
    assert slots.slots(64 * GIB) == 4 * GIB - GIB // 4
    with pytest.raises(RoomError):
        copied(MemoryPlanner(None, GIB), 1024)
    slots.close()
    assert copied(MemoryPlanner(None, GIB), 1024) == GIB


@pytest.mark.parametrize("budget", ["auto", None])
def test_if_not_one_expert_fits_what_fits_is_nothing_and_all_is_an_error(
    budget: Budget, caplog: pytest.LogCaptureFixture
) -> None:
    planner = MemoryPlanner(budget, GIB)
    if budget is None:
        with pytest.raises(RoomError):
            copied(planner, 4, 8 * GIB)
        return
    assert copied(planner, 4, 8 * GIB) == 0
    assert "experts come from the files: not one expert can be copied: the smallest takes 8.00 GiB" in caplog.text


def test_slots_for_more_than_there_is_are_not_promised() -> None:
    assert MemoryPlanner("auto", GIB).slots(GIB) == GIB
    assert MemoryPlanner("auto", GIB).slots(64 * GIB) == int((6 * GIB - GIB // 4) * SLOT_SHARE)


def test_siblings_have_equal_slots_and_copies_whoever_is_first() -> None:
    siblings = Siblings(family=7, here=3, part=None)
    three = [MemoryPlanner("auto", GIB, siblings) for _ in range(3)]
    share = 7 * GIB // 3
    assert [planner.slots(64 * GIB) for planner in three] == [int((share - share // 16) * SLOT_SHARE)] * 3
    three[0].close()
    copies = MemoryPlanner("auto", GIB, siblings)
    assert abs(copied(copies, 64 * 1024) - (share - share // 16)) < ONE
    others = MemoryPlanner("auto", GIB, Siblings(family=8, here=2, part=None))
    assert others.slots(64 * GIB) > 0  # of what is left


def test_what_a_sibling_has_filled_is_known_until_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = Siblings(family=7, here=2, part=None)
    first, second = MemoryPlanner(None, GIB, siblings), MemoryPlanner("auto", GIB, siblings)
    assert copied(first, 3 * 1024) == 3 * GIB
    first.touched(3 * GIB)
    left = host_ledger.host_memory()

    def less(*_: object) -> host_memory.HostMemory:
        return replace(left, available=5 * GIB, machine_available=5 * GIB)

    monkeypatch.setattr(host_ledger, "host_memory", less)
    assert copied(second, 64 * 1024) == 7 * GIB // 2 // ONE * ONE - 7 * GIB // 32
    second.close()
    first.close()
    assert copied(MemoryPlanner("auto", GIB, siblings), 64 * 1024) < 2 * GIB  # half of what is free now
