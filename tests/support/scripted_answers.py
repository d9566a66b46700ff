"""How a scripted worker answers a call: well, badly, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scripted_parts import WIDTH, fixed, value

from protocol.messages import (
    Message,
    RunExperts,
    Sums,
    WorkFailed,
)


def good_answer(work: RunExperts) -> Sums:
    """What a sound worker says."""
    rows: dict[int, list[float]] = {}
    for expert, index, weight in zip(work.entry_expert, work.entry_row, work.entry_weight, strict=True):
        row = int(work.row[index])
        rows.setdefault(row, []).append(value(row, int(expert), float(weight)))
    single = [(row, values[0]) for row, values in sorted(rows.items()) if len(values) == 1]
    several = [(row, sum(map(fixed, values))) for row, values in sorted(rows.items()) if len(values) > 1]
    return Sums(
        session=work.session,
        step=work.step,
        layer=work.layer,
        attempt=work.attempt,
        single_row=np.array([row for row, _ in single], np.int32),
        single=np.array([[value] * WIDTH for _, value in single], np.float32).reshape(-1, WIDTH),
        sum_row=np.array([row for row, _ in several], np.int32),
        sum48=np.empty((0, WIDTH, 6), np.uint8),
        sum64=np.array([[value] * WIDTH for _, value in several], np.int64).reshape(-1, WIDTH),
        busy_us=100,
        wait_us=50,
    )


Behaviour = Callable[[RunExperts], "list[Message]"]


def answers_well(work: RunExperts) -> list[Message]:
    """One good answer, at once."""
    return [good_answer(work)]


def silent(work: RunExperts) -> list[Message]:
    """No answer."""
    return []


def wrong_row(reply: Sums) -> Sums:
    """Its rows are those of others."""
    return replace(reply, single_row=reply.single_row + np.int32(1), sum_row=reply.sum_row + np.int32(1))


def failed(work: RunExperts, reason: str = "no") -> list[Message]:
    """It could not be computed."""
    return [
        WorkFailed(
            session=work.session, step=work.step, layer=work.layer, attempt=work.attempt, expert=-1, reason=reason
        )
    ]


def garbled(reply: Sums, **change: Any) -> Sums:
    """The reply with other fields."""
    return replace(reply, **change)
