"""How fast kernels are: experts of the model's sizes and types, computed for a moment at the start.

Their weights are zeros in memory of its own, so no file is read; kernels take as long for any other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

import native
from protocol.layout import ExpertLayout, LayerExperts, RoleTensor
from protocol.messages import I32, MAX_ENTRIES_PER_ROW, MAX_ENTRY_NS

log = logging.getLogger(__name__)

TRIAL_S = 0.02
"""How long it computes; making the weights takes about as long."""
WEIGHT_BYTES = 48 << 20
"""Of weights at most, but one expert's at least: more than most caches hold."""
AT_ONCE = 8
"""Experts of one row, as many models have them."""
LEAST_TIMES = 3
"""Calls that are timed at least."""


def kernel_trial(layout: ExpertLayout, threads: int) -> int:
    """Nanoseconds for one expert of one row with so many threads; of the fastest call: a machine is busy at times."""
    _, layer = next(iter(layout.with_experts()))
    count = max(1, min(WEIGHT_BYTES // layer.blob_bytes, layout.experts * len(layout.layers), 4096))
    pool = native.Pool(threads)
    weights = [_weights(role, count) for role in layer.roles]
    rows = native.Rows(np.zeros((1, layout.width), np.float32))
    return timed(lambda experts: _call_s(pool, weights, layer, rows, experts), count)


def timed(call_s: Callable[[I32], float], count: int) -> int:
    """Nanoseconds for one expert of the fastest call, a few of `count` experts in turn by each.

    `call_s` computes these experts, which ascend, for one row, and returns the seconds that it took.
    """
    at_once = min(count, AT_ONCE, MAX_ENTRIES_PER_ROW)
    seconds: list[float] = []
    until, start = time.perf_counter() + TRIAL_S, 0
    while len(seconds) < LEAST_TIMES or time.perf_counter() < until:
        seconds.append(call_s(np.arange(start, start + at_once, dtype=np.int32)))
        start = start + at_once if start + 2 * at_once <= count else 0
    entry_ns = round(min(seconds) / at_once * 1e9)
    log.info("an expert of one row takes %.3g us in these kernels", entry_ns / 1000)
    return min(max(entry_ns, 1), MAX_ENTRY_NS)


def _weights(role: RoleTensor, count: int) -> native.Weights:
    data = np.empty(role.expert_bytes * count, np.uint8)
    data.fill(0)  # or else all of its pages would be the same one
    return native.Weights(data, int(role.type), count, role.rows, role.columns, role.packed)


def _call_s(
    pool: native.Pool, weights: list[native.Weights], layer: LayerExperts, rows: native.Rows, experts: I32
) -> float:
    gate, up, down = weights
    zeros, count = np.zeros(len(experts), np.int32), len(experts)
    sums = np.zeros((1, layer.down.rows), np.int64)
    singles = np.empty((0, layer.down.rows), np.float32)
    began = time.perf_counter()
    native.run_experts(pool, gate, up, down, rows, experts, zeros, np.ones(count, np.float32), zeros - 1, singles, sums)
    return time.perf_counter() - began
