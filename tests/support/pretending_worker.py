"""A real expert worker that computes each size of call once, and sleeps that long for others of the size.

So its processor is its own, as on another machine. With EXPERTMESH_TEST_ENTRY_US it computes nothing, and takes so
many microseconds for each entry. What it then answers is zeros, but to canaries: this is for timings only.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

import expert_worker.main
import native
from coordinator.canaries import ATTEMPT
from expert_worker.bank import ExpertBank
from protocol.messages import RunExperts, Sums

STEPS = 3
"""Sizes of calls that are told apart, between one and its double."""
ENTRY_S = float(os.environ.get("EXPERTMESH_TEST_ENTRY_US", 0)) * 1e-6

_really_answer: Any = ExpertBank.answer
_took_s: dict[tuple[int, int], float] = {}


def _answer(self: ExpertBank, work: RunExperts, wait_us: int) -> Sums:
    if work.attempt == ATTEMPT:
        canary: Sums = _really_answer(self, work, wait_us)
        return canary
    began = time.perf_counter()
    seconds = ENTRY_S * len(work.entry_expert)
    if not ENTRY_S:
        size = _rounded(len(np.unique(work.entry_expert))), _rounded(len(work.entry_expert))
        if size not in _took_s:
            used = time.process_time()  # which a loaded machine does not make longer
            answer: Sums = _really_answer(self, work, wait_us)
            _took_s[size] = time.process_time() - used
            return answer
        seconds = _took_s[size]
    answer = _zeros(work, self.layout.width, wait_us)
    time.sleep(max(0.0, seconds - (time.perf_counter() - began)))
    return replace(answer, busy_us=int((time.perf_counter() - began) * 1e6))


def _rounded(number: int) -> int:
    return round(STEPS * math.log2(number))


def _zeros(work: RunExperts, width: int, wait_us: int) -> Sums:
    _, single_row, sum_row = native.assign_slots(work.entry_row, work.row)
    return Sums(
        session=work.session,
        step=work.step,
        layer=work.layer,
        attempt=work.attempt,
        single_row=single_row,
        single=np.zeros((len(single_row), width), np.float32),
        sum_row=sum_row,
        sum48=np.zeros((len(sum_row), width, 6), np.uint8),
        sum64=np.empty((0, width), np.int64),
        busy_us=0,
        wait_us=wait_us,
    )


if __name__ == "__main__":
    if ENTRY_S:
        setattr(expert_worker.main, "kernel_trial", lambda layout, threads: int(ENTRY_S * 1e9))  # noqa: B010
    setattr(ExpertBank, "answer", _answer)  # noqa: B010 # which the type checker takes for a mistake
    sys.exit(expert_worker.main.main())
