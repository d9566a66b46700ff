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
from random_weights import random_rows

import native
from protocol.quant_types import RUNNABLE, TensorType

BYTES = 200_000_000


def weights_of(kind: TensorType, columns: int) -> native.Weights:
    """About 200 MB, so that no cache holds them; one part repeated, since only the reading counts."""
    part = random_rows(np.random.default_rng(1), int(kind), 1000, columns)
    repeats = BYTES // part.nbytes
    return native.Weights(np.tile(part, repeats), int(kind), 1, 1000 * repeats, columns)


def seconds(pool: native.Pool, weights: native.Weights, x: NDArray[np.float32]) -> float:
    out = np.empty((len(x), weights.rows), np.float32)
    rows = native.Rows(x)
    began = time.perf_counter()
    native.matmul(pool, weights, 0, rows, out)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--columns", type=int, default=2048, help="of a row; types whose blocks do not fit are left out"
    )
    options = parser.parse_args()
    print(heading("Row dots"))
    columns = options.columns
    one, many = (np.random.default_rng(2).standard_normal((n, columns)).astype(np.float32) for n in (1, 64))
    plain = weights_of(TensorType.F32, columns)
    pools = [native.Pool(threads) for threads in sorted({1, os.cpu_count() or 1})]
    rows = []
    for kind in sorted(kind for kind in RUNNABLE if columns % kind.block_columns == 0):
        weights = weights_of(kind, columns)
        for pool in pools:
            speeds, ratios = [], []
            for _ in range(options.rounds):
                limit = BYTES / seconds(pool, plain, one)
                speed = BYTES / seconds(pool, weights, one)
                speeds.append(speed / 1e9)
                ratios.append(speed / limit)
            busy = statistics.median(seconds(pool, weights, many) for _ in range(2))
            products = 64 * weights.rows * columns / busy / 1e9
            rows.append([pool.threads, kind.name, statistics.median(speeds), statistics.median(ratios), products])
    rows.sort(key=lambda row: row[0])
    print(table(["threads", "type", "GB/s, 1 row", "of F32's", "G multiply-adds/s, 64 rows"], rows))


if __name__ == "__main__":
    main()
