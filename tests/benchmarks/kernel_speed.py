"""Row dots of every weight type, from memory.

Bytes of weights per second for one activation row, beside F32 rows, which cost next to no arithmetic and so show what
this machine reads from memory; and multiply-adds per second for 64 rows. Types are interleaved with F32, and the ratio
is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
from benchmark_page import heading, table
from numpy.typing import NDArray
from random_weights import BLOCKS, random_rows

import native

NAMES = {0: "F32", 1: "F16", 30: "BF16", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K"}
COLUMNS, BYTES = 2048, 200_000_000


def weights_of(type_id: int) -> native.Weights:
    """About 200 MB, so that no cache holds them; one part repeated, since only the reading counts."""
    block_columns, block_bytes = BLOCKS[type_id]
    row_bytes = COLUMNS // block_columns * block_bytes
    part = random_rows(np.random.default_rng(1), type_id, 1000, COLUMNS)
    repeats = BYTES // (1000 * row_bytes)
    return native.Weights(np.tile(part, repeats), type_id, 1, 1000 * repeats, COLUMNS)


def seconds(pool: native.Pool, weights: native.Weights, x: NDArray[np.float32]) -> float:
    out = np.empty((len(x), weights.rows), np.float32)
    rows = native.Rows(x)
    began = time.perf_counter()
    native.matmul(pool, weights, 0, rows, out)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(heading("Row dots"))
    one, many = (np.random.default_rng(2).standard_normal((n, COLUMNS)).astype(np.float32) for n in (1, 64))
    weights = {type_id: weights_of(type_id) for type_id in NAMES}
    rows = []
    for threads in sorted({1, os.cpu_count() or 1}):
        pool = native.Pool(threads)
        for type_id, name in NAMES.items():
            speeds, ratios = [], []
            for _ in range(options.rounds):
                limit = BYTES / seconds(pool, weights[0], one)
                speed = BYTES / seconds(pool, weights[type_id], one)
                speeds.append(speed / 1e9)
                ratios.append(speed / limit)
            busy = statistics.median(seconds(pool, weights[type_id], many) for _ in range(2))
            products = 64 * weights[type_id].rows * COLUMNS / busy / 1e9
            rows.append([threads, name, statistics.median(speeds), statistics.median(ratios), products])
    print(table(["threads", "type", "GB/s, 1 row", "of F32's", "G multiply-adds/s, 64 rows"], rows))


if __name__ == "__main__":
    main()
