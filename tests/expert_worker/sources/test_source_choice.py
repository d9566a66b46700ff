"""Which source suits a machine, and how much is left to everything else, where nobody says it."""

from __future__ import annotations

from typing import Any

import pytest

from expert_worker.pressure import Reading
from expert_worker.sources.choice import DIRECT_BELOW, GIB, Asked, Choice, Facts, choose

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


def chosen(free: float, *, part: float | None = 1.0, why_not_direct: str = "", asked: Asked | None = None) -> Choice:
    """With ten GiB of experts and so many GiB free beside the headroom."""
    facts = Facts(
        expert_bytes=10 * GIB,
        total=64 * GIB,
        available=int(free * GIB),
        part=part,
        why_not_direct=why_not_direct,
    )
    return choose(asked or Asked(headroom=0), facts)


def test_direct_reads_are_chosen_where_most_experts_have_to_be_read() -> None:
    least = 10 * DIRECT_BELOW
    assert chosen(least).source == "mapped"
    choice = chosen(least - 0.1)
    assert (choice.source, choice.ram) == ("direct", None)
    assert choice.why.startswith("less than 40% of the 10 GiB of experts that are to be held on this machine fit into ")
    assert chosen(least - 0.1, part=0.5).source == "mapped"
    assert chosen(least / 2 - 0.1, part=0.5).source == "direct"


@pytest.mark.parametrize(
    ("change", "source"),
    [
        ({"part": None}, "mapped"),
        ({"why_not_direct": "m.gguf: Invalid argument"}, "mapped"),
        ({"asked": Asked(source="mapped", headroom=0)}, "mapped"),
        ({"asked": Asked(ram=GIB, headroom=0)}, "copies"),
    ],
)
def test_but_not_where_a_person_or_the_machine_says_otherwise(change: dict[str, Any], source: str) -> None:
    choice = chosen(1, **change)
    assert choice.source == source
    reason = "; they cannot be read past the page cache: m.gguf: Invalid argument"
    assert choice.why.endswith(reason) == ("why_not_direct" in change)


def test_where_memory_is_not_known_pages_are_left_to_the_kernel() -> None:
    assert choose(Asked(), Facts(expert_bytes=GIB, total=None, available=None, part=1.0)).source == "mapped"
