"""What a layer's call costs beside kernels and sockets, part by part: processor time of one thread, in this process.

Two owners hold half of 128 experts each, of which a row takes 8; rows are 2,048 wide, as in Qwen3-30B-A3B. *plan*
decides who computes what; *send* builds and encodes the calls of both owners; *take in* decodes one call at its worker,
checks that all is held, assigns slots and makes activation rows; *reply* packs and encodes the answer; *take* decodes
it at the coordinator, checks and adds it. `warm` repeats at once; `evicted` reads 64 MiB of memory before each of plan,
take in, reply and take, as kernels read weights in between.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from benchmark_page import GrowingTable, heading

import native
from coordinator.plan import Part, plan_layer
from coordinator.replies import add_reply
from protocol import codec
from protocol.holder.answer import assign_slots, pack
from protocol.messages import F32, I32, I64, RunExperts, Sums

WIDTH, EXPERTS, USED = 2048, 128, 8
OWNER = np.repeat(np.array([1, 2], np.int64), EXPERTS // 2)
HELD = np.ones((4, EXPERTS), np.uint8)
Result = TypeVar("Result")
PARTS = ("plan", "send", "take in", "reply", "take")


class Layer:
    """One layer's call, with a clock around each part."""

    def __init__(self, rows: int, before: Callable[[], object]) -> None:
        """`before` comes before each part that follows a kernel."""
        self.times: dict[str, list[int]] = {part: [] for part in PARTS}
        self._rows = rows
        self._before = before
        self._random = np.random.default_rng(1)
        values = self._random.standard_normal((rows, WIDTH)).astype(np.float32)
        self._codes, self._scales = native.Rows(values).quantise()
        self._weights = np.full((rows, USED), 1 / USED, np.float32)
        self._sums = np.zeros((rows, WIDTH), np.int64)

    def run(self) -> None:
        """All parts, once."""
        draws = [self._random.permutation(EXPERTS)[:USED] for _ in range(self._rows)]
        ids = np.array(draws, np.int32)
        self._before()
        parts = self._timed("plan", lambda: plan_layer(3, ids, self._weights, OWNER))
        calls = self._timed("send", lambda: [codec.encode(self._call(part)) for part in parts])
        call = [bytes(frame) for frame in calls[0]]
        self._before()
        work, single_row, sum_row = self._timed("take in", lambda: self._take_in(call))
        single, sums = np.ones((len(single_row), WIDTH), np.float32), np.full((len(sum_row), WIDTH), 2**40, np.int64)
        self._before()
        frames = self._timed("reply", lambda: codec.encode(self._answer(work, single_row, single, sum_row, sums)))
        answer = [bytes(frame) for frame in frames]
        self._before()
        self._timed("take", lambda: self._take(answer, parts[0]))

    def _timed(self, part: str, work: Callable[[], Result]) -> Result:
        began = time.thread_time_ns()
        result = work()
        self.times[part].append(time.thread_time_ns() - began)
        return result

    def _call(self, part: Part) -> RunExperts:
        row, entry_row = part.distinct_rows(self._rows)
        whole = len(row) == self._rows
        return RunExperts(
            session="0123456789abcdef",
            placement=1,
            step=1,
            layer=3,
            attempt=0,
            codes=self._codes if whole else self._codes[row],
            scales=self._scales if whole else self._scales[row],
            values=np.empty((0, 0), np.float32),
            row=row,
            entry_expert=part.expert,
            entry_row=entry_row,
            entry_weight=part.weight,
        )

    def _take_in(self, frames: list[bytes]) -> tuple[RunExperts, I32, I32]:
        work = codec.decode(frames)
        assert isinstance(work, RunExperts)
        assert native.first_not_held(HELD, work.layer, work.entry_expert) < 0
        _, single_row, sum_row = assign_slots(work.layer, work.entry_row, work.row)
        native.Rows.quantised(work.codes, work.scales)
        return work, single_row, sum_row

    def _answer(self, work: RunExperts, single_row: I32, single: F32, sum_row: I32, sums: I64) -> Sums:
        sum48, sum64 = pack(sums)
        return Sums(
            session=work.session,
            step=work.step,
            layer=work.layer,
            attempt=work.attempt,
            single_row=single_row,
            single=single,
            sum_row=sum_row,
            sum48=sum48,
            sum64=sum64,
            busy_us=1,
            wait_us=1,
        )

    def _take(self, frames: list[bytes], part: Part) -> None:
        answer = codec.decode(frames)
        assert isinstance(answer, Sums)
        add_reply(answer, part.row, self._sums)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--layers", type=int, default=300, help="of each kind")
    options = parser.parse_args()
    print(heading("A layer beside kernels and sockets"))
    weights = np.ones(8 << 20, np.int64)
    page = GrowingTable(["rows", "caches", "us", *PARTS, "all"])
    for rows in options.rows:
        for caches, before in (("warm", lambda: None), ("evicted", weights.max)):
            layer = Layer(rows, before)
            for _ in range(options.layers):
                layer.run()
            for percent in (10, 50, 99):
                columns = [float(np.percentile(layer.times[part], percent)) / 1e3 for part in PARTS]
                page.add([rows, caches, f"P{percent}", *columns, sum(columns)])


if __name__ == "__main__":
    main()
