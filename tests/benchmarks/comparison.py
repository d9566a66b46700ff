"""The sides of one comparison: started, kept up from first to last, and asked in turns."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import starts
from comparison_table import order_of_a_round
from interleaved import Question, Sample, decode, in_turns, many, prefill
from llama_process import LlamaSide, llama_process
from machine_check import MachineCheck
from our_side import our_side
from read_bandwidth import SMALL, Memory, Reader, Readings, mapped_file, own_memory, reader
from sides import Side
from targets import Run
from token_bytes import read_by_token

from coordinator.interrupts import Interrupts
from protocol.model import Model

SEED = 1
SHORT = 8
"""Prompt of the question about decoding."""
WARM = 128
"""Prompt tokens that between them visit nearly all experts, so that each process has touched its pages."""
PACK = "pack"


class Comparison:
    """One run. A context manager: at its end all processes end."""

    def __init__(self, options: argparse.Namespace, python: Path | None, deadline: float) -> None:
        """`python` has llama-cpp-python, if any has. Nothing is begun after the deadline, a reading of `monotonic`."""
        self._stack = ExitStack()
        self._options, self._python, self._deadline = options, python, deadline
        with Model.open(options.model) as model:
            self._vocabulary, self._needed = model.geometry.vocabulary, read_by_token(model)
        self._files = {"": options.model} | ({PACK: options.our_model} if options.our_model else {})
        self._questions = [question for part, question in self._all_questions().items() if part in options.only]
        self._readings = Readings()
        self._reader: Reader | None = None
        self._areas: list[Memory] = []
        self._ours: list[Side] = []
        self._theirs: list[Side] = []
        self.llama_facts = ""
        """What llama.cpp it is; empty if there is none."""

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def run(self, interrupts: Interrupts) -> Run:
        """Starts first, for nothing else may run beside them; then the questions."""
        for path in self._files.values():
            _read_once(path)
        taken = self._starts(interrupts) if "start" in self._options.only else []
        samples = self._answers(interrupts) if self._questions else []
        limits = {threads: self._limit(threads) for threads in {kind[1] for kind in self._readings.kinds()}}
        return Run(samples=samples, limits=limits, starts=taken)

    def _all_questions(self) -> dict[str, Question]:
        options = self._options
        rng = np.random.default_rng(SEED)
        ids = rng.integers(0, self._vocabulary, max(options.prompt, WARM, SHORT)).tolist()
        crowd = rng.integers(0, self._vocabulary, (options.sequences, options.their_prompt)).tolist()
        self._warm = ids[:WARM]
        return {
            "prefill": prefill(ids[: options.prompt]),
            "decode": decode(ids[:SHORT], options.tokens),
            "many": many(crowd, options.their_tokens),
        }

    def _starts(self, interrupts: Interrupts) -> starts.Taken:
        ways = [
            way
            for label, path in self._files.items()
            for way in starts.our_starts(path, label, self._options.workers, interrupts)
        ]
        if self._python is not None:
            ways += starts.their_starts(self._python, self._options.model, self._options.llama)
        return starts.measure(ways, self._options.start_rounds, self._deadline)

    def _answers(self, interrupts: Interrupts) -> list[Sample]:
        """All rounds that there is time for, after a warm-up; each sample is told on stderr."""
        self._start_ours(interrupts)
        self._start_theirs()
        order = order_of_a_round(self._ours, self._theirs)
        for side in order:
            side.ask([self._warm], SHORT)
        if "decode" in self._options.only:
            self._reader = self._stack.enter_context(reader())
            count = int(self._options.read_gb * 1e9)
            self._areas = [own_memory(count, SMALL), mapped_file(self._options.model, count)]
        check = MachineCheck(max(side.threads for side in order))
        turns = in_turns(order, self._questions, self._options.rounds, check, self._options.settle_s, self._read_memory)
        samples = []
        for sample in turns:
            samples.append(sample)
            sys.stderr.write(f"{sample}\n")
            if time.monotonic() > self._deadline:
                break  # ratios are of whole rounds, so a part of one does no harm
        return samples

    def _start_ours(self, interrupts: Interrupts) -> None:
        """A cluster for each file, and number of workers and threads."""
        for label, path in self._files.items():
            for workers in self._options.workers:
                for threads in self._options.threads:
                    context = our_side(path, interrupts, workers=workers, threads=threads, label=label)
                    self._ours.append(self._stack.enter_context(context))

    def _start_theirs(self) -> None:
        """A process for each layout of the weights, asked with each number of threads that one of ours uses."""
        if self._python is None:
            return
        room = max(len(prompt) + question.tokens for question in self._questions for prompt in question.prompts)
        sequences = max(len(question.prompts) for question in self._questions)
        for layout in self._options.llama:
            context = llama_process(
                self._python,
                self._options.model,
                max(room, WARM + SHORT),
                repack=layout == "repacked",
                sequences=sequences,
            )
            process = self._stack.enter_context(context)
            self._theirs += [LlamaSide(process, threads) for threads in sorted({side.threads for side in self._ours})]
            self.llama_facts = f"llama.cpp of llama-cpp-python {process.version}: {process.features}"

    def _read_memory(self, number: int, question: Question) -> None:
        """Before the question about decoding: what it can be compared with."""
        if self._reader is None or question.tokens == 1 or len(question.prompts) > 1:
            return
        for threads in sorted({side.threads for side in self._ours}):
            for area in self._areas:
                self._readings.take(number, self._reader, area, threads)

    def _limit(self, threads: int) -> dict[int, float]:
        """Tokens per second, by round."""
        return {number: speed / self._needed for number, speed in self._readings.limit(threads).items()}


def _read_once(model: Path) -> None:
    """So that nobody's start has to wait for the disk."""
    buffer = bytearray(1 << 24)
    with model.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
