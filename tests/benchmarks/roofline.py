"""The bytes that a token must read, how fast this machine reads memory, and how near our own decoding comes to that.

    PYTHONPATH=tests/support:tests/benchmarks .venv/bin/python -P tests/benchmarks/roofline.py MODEL [PACK]

Reading and decoding take turns in one process. Prints what belongs under the last heading of docs/roofline.md; progress
goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmark_page import heading, table
from in_process import InProcess, in_process
from machine_check import MachineCheck
from paired_figures import in_turn, paired_ratios, spread
from read_bandwidth import FILE, HUGE, SMALL, Memory, Reader, Readings, Speeds, mapped_file, own_memory, reader
from token_bytes import Part, read_by_token, token_bytes

from protocol.errors import ExpertmeshError
from protocol.model import Model

PROMPT = 8
WARM = 24
"""Tokens decoded before the first round, so that pages have been touched."""


class Roofline:
    """One run: what is read and decoded, and how fast it was in each round."""

    def __init__(self, options: argparse.Namespace, program: Reader, sides: Sequence[tuple[str, InProcess]]) -> None:
        count = int(options.buffer_gb * 1e9)
        self._areas = [own_memory(count, SMALL), own_memory(count, HUGE), mapped_file(options.models[0], count)]
        self._options, self._program, self._sides = options, program, sides
        self._check = MachineCheck(max(options.threads))
        self.checks: list[float] = []
        self.read = Readings()
        self.decoded: dict[tuple[str, int], Speeds] = defaultdict(dict)
        """Tokens per second, by file and threads."""

    def measure(self) -> None:
        """All rounds that there is time for."""
        deadline = time.monotonic() + self._options.within_s
        for _, side in self._sides:
            side.begin(PROMPT + WARM + self._options.rounds * self._options.tokens + 1)
            side.step(side.prompt(PROMPT))
            side.decode(WARM)
        for number in range(self._options.rounds):
            for threads in in_turn(self._options.threads, number):
                self.checks.append(self._check.settled(self._options.settle_s))
                for area in in_turn(self._areas, number):
                    self._read(number, area, threads)
                for name, side in in_turn(self._sides, number):
                    if side.threads == threads:
                        self._decode(number, name, side)
                self.checks.append(self._check.ratio())
            if time.monotonic() > deadline:
                break

    def _read(self, number: int, area: Memory, threads: int) -> None:
        self.read.take(number, self._program, area, threads)
        speed = self.read.of(area.pages, threads)[number]
        sys.stderr.write(f"round {number + 1}: {threads} threads read {area.pages} at {speed / 1e9:.1f} GB/s\n")

    def _decode(self, number: int, name: str, side: InProcess) -> None:
        speed = self.decoded[name, side.threads][number] = self._options.tokens / side.decode(self._options.tokens)
        sys.stderr.write(f"round {number + 1}: {side.threads} threads decode {name}: {speed:.1f} tokens/s\n")


def byte_table(model: Model) -> str:
    """What a token reads, part by part."""
    parts = token_bytes(model)
    parts["all"] = Part(
        read=sum(part.read for part in parts.values()), stored=sum(part.stored for part in parts.values())
    )
    rows = [[name, f"{part.read / 1e6:.3f}", f"{part.stored / 1e6:.1f}"] for name, part in parts.items()]
    return table(["part", "MB read for a token", "MB in the file"], rows)


def limit_table(found: Roofline, needed: int) -> str:
    """Bandwidth, and the tokens per second that it allows."""
    rows = []
    for pages, threads in found.read.kinds():
        speeds = found.read.of(pages, threads).values()
        in_gb, in_tokens = (spread([speed / unit for speed in speeds]) for unit in (1e9, needed))
        streams, ahead = found.read.walk(pages, threads)
        walk = f"{streams}, {ahead} bytes prefetched" if ahead else str(streams)
        rows.append([threads, pages, walk, in_gb, in_tokens])
    return table(["threads", "what is read", "streams of a thread", "GB/s", "limit, tokens/s"], rows)


def share_table(found: Roofline, needed: int) -> str:
    """Our own decoding, as a share of the limit in the same round."""
    rows = []
    for (name, threads), speeds in sorted(found.decoded.items(), key=lambda item: (item[0][1], item[0][0])):
        limits = found.read.of(FILE, threads), found.read.limit(threads)
        achieved = {number: speed * needed for number, speed in speeds.items()}
        shares = [spread(paired_ratios(achieved, limit)) for limit in limits]
        gb_s = spread([speed / 1e9 for speed in achieved.values()])
        rows.append([name, threads, spread(list(speeds.values())), gb_s, *shares])
    return table(["file", "threads", "tokens/s", "GB/s", f"of {FILE}", "of the fastest reading"], rows)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    title = heading("Figures")
    with ExitStack() as stack:
        program = stack.enter_context(reader())
        sides = [
            (path.name, stack.enter_context(in_process(path, threads)))
            for path in options.models
            for threads in options.threads
        ]
        found = Roofline(options, program, sides)
        found.measure()
        model = sides[0][1].model
        needed = read_by_token(model)
        print(f"{title}\n{options.models[0].name}:\n\n{byte_table(model)}")
    print(f"Memory, {options.buffer_gb:g} GB of it at a time:\n\n{limit_table(found, needed)}")
    print(f"Decoding in one process, in the same rounds:\n\n{share_table(found, needed)}")
    print(f"Machine check with {max(options.threads)} threads, before and after: {spread(found.checks)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("models", type=Path, nargs="+", metavar="MODEL", help="the model, and other files of the same, as packs are")
    add("--threads", nargs="+", type=int, default=list(range(1, min(2, os.cpu_count() or 1) + 1)))
    add("--rounds", type=int, default=7)
    add("--tokens", type=int, default=24, help="decoded in each round")
    add("--buffer-gb", type=float, default=2.0, help="memory to read; there are two such buffers")
    add("--within-s", type=float, default=300.0, help="no round is begun later than this")
    add("--settle-s", type=float, default=2.0, help="how long a good machine check is waited for")
    options = parser.parse_args()
    try:
        run(options)
    except ExpertmeshError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
