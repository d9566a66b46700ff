"""Row dots of every weight type, from memory, as rows lie in a GGUF file and packed.

Bytes of weights per second for 1 activation row, and as a share of what this machine reads of those very bytes without
computing anything; and operations per second (a multiplication and an addition are two) for 8 and 32 rows. Layouts and
reading take turns; figures are medians of the rounds, ratios those of the same round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from benchmark_page import GrowingTable, heading
from numpy.typing import NDArray
from paired_figures import in_turn, paired_ratios
from random_weights import random_rows
from read_bandwidth import Memory, Reader, Readings, reader

import native
from protocol.quant_types import RUNNABLE, TensorType

BYTES = 200_000_000
"""Of a matrix that meets one activation row: no cache holds it."""
FEWER = 4
"""By how much the matrix is smaller that meets several: no cache holds that either."""
PART_ROWS = 1024
SEVERAL = (8, 32)
"""Activation rows."""
ROWS, PACKED = "rows", "packed"
COLUMNS = (
    "threads",
    "type",
    "layout",
    "GB/s, 1 row",
    "of reading",
    "GOPS, 8 rows",
    "32 rows",
    "packed over rows: 1, 8, 32",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matrix:
    """One type in one layout, in two sizes."""

    layout: str
    data: NDArray[np.uint8]
    large: native.Weights
    small: native.Weights

    def of(self, rows: int) -> native.Weights:
        """The one that so many activation rows meet."""
        return self.large if rows == 1 else self.small


def matrices(kind: TensorType, columns: int, size: int) -> Iterator[Matrix]:
    """Of `size` bytes at least: one part repeated, since only the reading counts."""
    part = random_rows(np.random.default_rng(1), int(kind), PART_ROWS, columns)
    layouts = {ROWS: part}
    if not kind.is_float:
        layouts[PACKED] = np.empty_like(part)
        native.pack_rows(int(kind), PART_ROWS, columns, part, layouts[PACKED])
    for layout, first in layouts.items():
        repeats = -(-size // first.nbytes)
        data, fewer = np.tile(first, repeats), -(-repeats // FEWER)

        def weights(count: int, data: NDArray[np.uint8] = data, packed: bool = layout == PACKED) -> native.Weights:
            return native.Weights(data[: count * part.nbytes], int(kind), 1, count * PART_ROWS, columns, packed)

        yield Matrix(layout=layout, data=data, large=weights(repeats), small=weights(fewer))


def seconds(pool: native.Pool, weights: native.Weights, rows: native.Rows) -> float:
    """One product."""
    out = np.empty((rows.count, weights.rows), np.float32)
    began = time.perf_counter()
    native.matmul(pool, weights, 0, rows, out)
    return time.perf_counter() - began


class Kind:
    """The rounds of one type on one pool."""

    def __init__(self, found: list[Matrix], pool: native.Pool, program: Reader, rows: dict[int, native.Rows]) -> None:
        self._found, self._pool, self._program, self._rows = found, pool, program, rows
        self._read = Readings()
        self._speeds: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        """By layout and activation rows, then by round: bytes per second for one row, else operations."""

    def measure(self, rounds: int) -> None:
        """In turns."""
        for number in range(rounds):
            for each in in_turn(self._found, number):
                self._read.take(number, self._program, Memory(pages=each.layout, data=each.data), self._pool.threads)
                for count, rows in self._rows.items():
                    weights = each.of(count)
                    work = len(each.data) if count == 1 else 2.0 * count * weights.rows * weights.columns
                    self._speeds[each.layout, count][number] = work / seconds(self._pool, weights, rows)

    def rows(self, name: str) -> Iterator[list[object]]:
        """For the table."""
        for each in self._found:
            speeds = {count: self._speeds[each.layout, count] for count in self._rows}
            shares = paired_ratios(speeds[1], self._read.of(each.layout, self._pool.threads))
            rates = [statistics.median(speeds[count].values()) / 1e9 for count in self._rows]
            gains = [statistics.median(paired_ratios(speeds[count], self._speeds[ROWS, count])) for count in self._rows]
            beside = "" if each.layout == ROWS else ", ".join(f"{gain:.2f}" for gain in gains)
            yield [self._pool.threads, name, each.layout, rates[0], statistics.median(shares), *rates[1:], beside]


def measure(options: argparse.Namespace, program: Reader, add: Callable[[list[object]], None]) -> None:
    """All types that there is time for."""
    columns, deadline = options.columns, time.monotonic() + options.within_s
    values = np.random.default_rng(2).standard_normal((max(SEVERAL), columns)).astype(np.float32)
    rows = {count: native.Rows(values[:count]) for count in (1, *SEVERAL)}
    pools = [native.Pool(threads) for threads in options.threads]
    for kind in sorted(kind for kind in RUNNABLE if columns % kind.block_columns == 0):
        if options.types and kind.name not in options.types:
            continue
        if time.monotonic() > deadline:
            sys.stderr.write(f"no time left for {kind.name} and those behind it\n")
            return
        found = list(matrices(kind, columns, options.bytes))
        for pool in pools:
            of_kind = Kind(found, pool, program, rows)
            of_kind.measure(options.rounds)
            for row in of_kind.rows(kind.name):
                add(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=5)
    add("--columns", type=int, default=2048, help="of a row; types whose blocks do not fit are left out")
    add("--types", nargs="+", metavar="TYPE", help="these alone, as in Q4_K")
    add("--threads", nargs="+", type=int, default=sorted({1, os.cpu_count() or 1}))
    add("--bytes", type=int, default=BYTES, help="of a matrix")
    add("--within-s", type=float, default=240.0, help="no type is begun later than this")
    options = parser.parse_args()
    print(heading("Row dots"))
    with reader() as program:
        measure(options, program, GrowingTable(COLUMNS).add)


if __name__ == "__main__":
    main()
