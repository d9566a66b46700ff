"""Speed of expertmesh and of llama.cpp on the same file, threads and machine, in turns. docs/comparison.md explains it.

    python -P tests/support/moe_models.py bench-mid.gguf --preset bench-mid
    python -P tests/benchmarks/beside_llama.py --model bench-mid.gguf --llama-python .venv-llama/bin/python

Prints what belongs under the last heading of docs/comparison.md; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from benchmark_page import heading, table
from comparison_table import order_of_a_round, remarks, speeds
from interleaved import Sample, decode, in_turns, prefill
from llama_process import LlamaSide, llama_process
from machine_check import MachineCheck
from our_side import our_side
from sides import Side

from coordinator.interrupts import Interrupted, Interrupts
from protocol.errors import ExpertmeshError
from protocol.model import Model

SEED = 1
SHORT = 8
"""Prompt of the question about decoding."""
WARM = 128
"""Prompt tokens that between them visit nearly all experts, so that each process has touched its pages."""
NOT_MEASURED = "llama.cpp not measured: not installed, see docs/comparison.md"


class Comparison:
    """The sides of one run, kept up from first to last, and what their starts took."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace) -> None:
        self._stack = stack
        self._options = options
        self._deadline = time.monotonic() + options.within_s
        with Model.open(options.model) as model:
            vocabulary = model.geometry.vocabulary
        longest = max(options.prompt, WARM)
        self._ids = np.random.default_rng(SEED).integers(0, vocabulary, longest).tolist()
        self.ours: list[Side] = []
        self.theirs: list[Side] = []
        self.llama_facts = NOT_MEASURED
        self.starts: list[Sequence[object]] = []

    def start_ours(self, interrupts: Interrupts) -> None:
        """A cluster for each number of workers and threads."""
        for workers in self._options.workers:
            for threads in self._options.threads:
                began = time.monotonic()
                context = our_side(self._options.model, interrupts, workers=workers, threads=threads)
                side = self._stack.enter_context(context)
                self._first_token(side, began)
                self.ours.append(side)

    def start_theirs(self, python: Path) -> None:
        """A process for each layout of the weights, asked with each number of threads that one of ours uses."""
        room = len(self._ids) + self._options.tokens + 1
        for layout in self._options.llama:
            began = time.monotonic()
            context = llama_process(python, self._options.model, room, repack=layout == "repacked")
            process = self._stack.enter_context(context)
            sides = [LlamaSide(process, threads) for threads in sorted({side.threads for side in self.ours})]
            self._first_token(sides[-1], began)
            self.theirs += sides
            self.llama_facts = f"llama.cpp of llama-cpp-python {process.version}: {process.features}"

    def measure(self) -> list[Sample]:
        """All rounds that there is time for, after a warm-up; each sample is told on stderr."""
        order = order_of_a_round(self.ours, self.theirs)
        for side in order:
            side.ask(self._ids[:WARM], SHORT)
        check = MachineCheck(max(side.threads for side in order))
        questions = [prefill(self._ids[: self._options.prompt]), decode(self._ids[:SHORT], self._options.tokens)]
        samples = []
        for sample in in_turns(order, questions, self._options.rounds, check, self._options.settle_s):
            samples.append(sample)
            sys.stderr.write(f"{sample}\n")
            if time.monotonic() > self._deadline:
                break  # ratios are of whole rounds, so a part of one does no harm
        return samples

    def _first_token(self, side: Side, began: float) -> None:
        side.ask(self._ids[:SHORT], 1)
        self.starts.append([side.program, side.name, time.monotonic() - began])


def compare(options: argparse.Namespace, interrupts: Interrupts) -> None:
    """Start, measure, print."""
    title = heading("Figures")  # the load is that before the start
    with ExitStack() as stack:
        comparison = Comparison(stack, options)
        _read_once(options.model)
        comparison.start_ours(interrupts)
        python = options.llama_python or (Path(sys.executable) if find_spec("llama_cpp") else None)
        if python is not None:
            comparison.start_theirs(python)
        samples = comparison.measure()
    print(title)
    print(f"{options.model.name}; {comparison.llama_facts}.\n")
    print(speeds(samples))
    print(table(["program", "set up", "first token after, s"], comparison.starts))
    print(remarks(samples), end="")


def _read_once(model: Path) -> None:
    """So that nobody's start has to wait for the disk."""
    buffer = bytearray(1 << 24)
    with model.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", type=Path, required=True)
    add("--llama-python", type=Path, metavar="PATH", help="an interpreter with llama-cpp-python; this one if it has it")
    add("--llama", nargs="+", choices=("repacked", "plain"), default=["repacked", "plain"], help="layouts of weights")
    add("--workers", nargs="+", type=int, default=[0, 2])
    add("--threads", nargs="+", type=int, default=[1, 2])
    add("--rounds", type=int, default=3)
    add("--prompt", type=int, default=512, help="tokens of the prompt whose reading is timed")
    add("--tokens", type=int, default=64, help="tokens whose generation is timed")
    add("--within-s", type=float, default=900.0, help="no answer is begun later than this")
    add("--settle-s", type=float, default=3.0, help="how long a good machine check is waited for before an answer")
    options = parser.parse_args()
    try:
        with Interrupts().caught() as interrupts:
            compare(options, interrupts)
    except ExpertmeshError as error:
        parser.exit(2, f"error: {error}\n")
    except Interrupted as interrupted:
        parser.exit(interrupted.exit_code, f"stopped by {interrupted}\n")


if __name__ == "__main__":
    main()
