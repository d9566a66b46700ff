"""What is said of experts that nobody can compute, when the coordinator has no local bank of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from coordinator.members import Members
from coordinator.plan import LOCAL, Part
from coordinator.under_way import Blame
from protocol.errors import ExpertError
from protocol.messages import MAX_REASON

MOST = 8
"""Experts, and reasons, that are named; of more, how many there are."""


def check_held(layer: int, parts: Iterable[Part], members: Members, blames: Iterable[Blame] = ()) -> None:
    """ExpertError that names those experts of the parts that nobody holds, but for those who failed at them."""
    blames = list(blames)
    held = members.assignment.active
    for blame in blames:
        held = held.without(blame.seat.member.serial)
    unheld = sorted({int(one) for part in parts for one in part.expert if held.owner[layer, one] == LOCAL})
    if not unheld:
        return
    reasons = [f"{blame.seat.member.name} failed: {blame.reason}" for blame in blames]
    reasons += [f"{name} is gone: {reason}" for name, (member, reason) in members.gone.items() if member.holds]
    why = "; ".join(["nobody holds them, and local_experts is false", *_first(reasons)])
    raise ExpertError(layer, -1, f"{_experts(unheld)}: {why}"[:MAX_REASON])


def never_answered(layer: int, parts: Iterable[Part], members: Members) -> ExpertError:
    """Those who hold the experts of the parts live, and have not answered for as long as any call may take."""
    experts = sorted({int(one) for part in parts for one in part.expert})
    serials = {int(one) for one in np.unique(members.assignment.active.owner[layer, experts])}
    names = [member.name for member in members if member.serial in serials]
    return ExpertError(layer, -1, f"{_experts(experts)}: no answer of {', '.join(_first(names))}"[:MAX_REASON])


def _experts(numbers: Sequence[int]) -> str:
    return f"expert{'s' if len(numbers) > 1 else ''} {', '.join(_first([str(one) for one in numbers]))}"


def _first(texts: Sequence[str]) -> list[str]:
    return [*texts[:MOST], *([f"and {len(texts) - MOST} more"] if len(texts) > MOST else [])]
