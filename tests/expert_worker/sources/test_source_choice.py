"""How much is left to everything else where nobody says it."""

from __future__ import annotations

import pytest

from expert_worker.pressure import Reading
from expert_worker.sources.choice import GIB, Asked, Facts, choose

MIB = 1 << 20


def headroom(total: int | None, asked: int | None = None) -> int:
    facts = Facts(expert_bytes=GIB, total=total, available=total)
    return choose(Asked(source="copies", headroom=asked), facts).headroom


@pytest.mark.parametrize(
    ("total", "left"),
    [
        (None, 4 * GIB),
        (128 * GIB, 4 * GIB),
        (20 * GIB, 2 * GIB),
        (900 * MIB, 128 * MIB),
        (512 * MIB, 128 * MIB),
        (100 * MIB, 25 * MIB),
    ],
)
def test_a_tenth_is_left_but_neither_more_than_is_of_use_nor_too_little(total: int | None, left: int) -> None:
    assert headroom(total) == left
    assert headroom(total, 5) == 5


@pytest.mark.parametrize("total", [64 * MIB, 500 * MIB, 2 * GIB, 10 * GIB, 100 * GIB])
def test_who_leaves_it_does_not_have_to_give_copies_up_at_once(total: int) -> None:
    assert headroom(total) >= 2 * Reading(at_s=0, limit=total, room=0).reserve
