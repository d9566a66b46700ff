"""A real expert worker whose answers go wrong on their way out, as EXPERTMESH_TEST_PROBLEM says: "KIND,... EVERY".

Every EVERY-th answer has the next one of these problems, in turn; KIND is a name in PROBLEMS. Otherwise this is
`expert_worker.main`.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import expert_worker.main
from protocol.codec import encode
from protocol.holder import process
from protocol.messages import Message, Sums
from protocol.wire import Dialled

LATE_S = 0.8
"""More than the deadline that tests set."""

Problem = Callable[["ProblemLine", Sums], None]


class ProblemLine(Dialled):
    """A work connection with a problem."""

    def __init__(self, endpoint: str, **settings: Any) -> None:
        super().__init__(endpoint, **settings)
        kinds, every = os.environ["EXPERTMESH_TEST_PROBLEM"].split()
        self._problems = itertools.cycle([PROBLEMS[kind] for kind in kinds.split(",")])
        self._every = int(every)
        self._answers = 0

    def send(self, message: Message) -> bool:
        if not isinstance(message, Sums):
            return super().send(message)
        self._answers += 1
        if self._answers % self._every:
            return super().send(message)
        next(self._problems)(self, message)
        return True

    def really_send(self, message: Message) -> None:
        """Without a problem."""
        super().send(message)

    def send_frames(self, frames: list[bytes]) -> None:
        """Anything at all."""
        self._send(frames)


def _late(line: ProblemLine, reply: Sums) -> None:
    time.sleep(LATE_S)  # this is what being late means
    line.really_send(reply)


def _twice(line: ProblemLine, reply: Sums) -> None:
    line.really_send(reply)
    line.really_send(reply)


def _lost(line: ProblemLine, reply: Sums) -> None:
    pass


def _dies(line: ProblemLine, reply: Sums) -> None:
    """Between the call and its answer."""
    os.kill(os.getpid(), signal.SIGKILL)


def _truncated(line: ProblemLine, reply: Sums) -> None:
    line.send_frames([bytes(frame)[:-1] for frame in encode(reply)])
    line.really_send(reply)


def _first_changed(**change: object) -> Problem:
    """A copy with other fields goes ahead of the good answer."""

    def problem(line: ProblemLine, reply: Sums) -> None:
        line.really_send(replace(reply, **change))  # type: ignore[arg-type]
        line.really_send(reply)

    return problem


def _older(line: ProblemLine, reply: Sums) -> None:
    line.really_send(replace(reply, step=max(0, reply.step - 1)))
    line.really_send(reply)


def _instead(change: Callable[[Sums], Sums]) -> Problem:
    def problem(line: ProblemLine, reply: Sums) -> None:
        line.really_send(change(reply))

    return problem


def _other_rows(reply: Sums) -> Sums:
    return replace(reply, single_row=reply.single_row + np.int32(1), sum_row=reply.sum_row + np.int32(1))


def _no_rows(reply: Sums) -> Sums:
    return replace(
        reply,
        single_row=reply.single_row[:0],
        single=reply.single[:0],
        sum_row=reply.sum_row[:0],
        sum48=reply.sum48[:0],
        sum64=reply.sum64[:0],
    )


def _narrow(reply: Sums) -> Sums:
    return replace(
        reply,
        single=reply.single[:, 1:].copy(),
        sum48=reply.sum48[:, 1:].copy(),
        sum64=reply.sum64[:, 1:].copy(),
    )


def _too_large(reply: Sums) -> Sums:
    rows, width = len(reply.sum_row), reply.single.shape[1]
    return replace(
        reply,
        single=np.full_like(reply.single, 2.0**22),
        sum48=np.empty((0, width, 6), np.uint8),
        sum64=np.full((rows, width), 2**62 + 2**61),
    )


def _not_finite(reply: Sums) -> Sums:
    if not len(reply.single):
        return _too_large(reply)
    return replace(reply, single=np.full_like(reply.single, np.nan))


def _flipped(reply: Sums) -> Sums:
    """One bit of the first row that is otherwise right."""
    single, sum48, sum64 = reply.single.copy(), reply.sum48.copy(), reply.sum64.copy()
    for lowest in (single.view(np.int32), sum48, sum64):
        if lowest.size:
            lowest.flat[0] ^= 1
            break
    return replace(reply, single=single, sum48=sum48, sum64=sum64)


PROBLEMS: dict[str, Problem] = {
    "late": _late,
    "twice": _twice,
    "lost": _lost,
    "dies": _dies,
    "truncated": _truncated,
    "stale-session": _first_changed(session="0123456789abcdef"),
    "future-step": _first_changed(step=10**9),
    "other-attempt": _first_changed(attempt=1),
    "older": _older,
    "other-rows": _instead(_other_rows),
    "no-rows": _instead(_no_rows),
    "narrow": _instead(_narrow),
    "too-large": _instead(_too_large),
    "not-finite": _instead(_not_finite),
    "flipped": _instead(_flipped),
}


if __name__ == "__main__":
    vars(process)["Dialled"] = ProblemLine
    sys.exit(expert_worker.main.main())
