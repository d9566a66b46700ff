"""A whole model in one process: how fast it reads and writes on a device and beside it, and where the time goes."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmark_page import GrowingTable, table
from device_engine import device_engine
from local_engine import local_engine
from paired_figures import spread
from passing_experts import PassingExperts

from coordinator.choosing import choose
from coordinator.dense_half import DenseHalf, DenseStep, Rows
from coordinator.engine import Chunk, Engine, ExpertRunner
from coordinator.sampling import Sampling
from coordinator.sequence import Cache
from coordinator.sums import LayerSums
from coordinator.window import Window
from native import cuda
from protocol.messages import F32, I32
from protocol.model import Model

CHUNK = 256
"""Rows of a step, as the coordinator's default is."""
SHORT = 8
"""Tokens of the prompt before generated ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked."""

    prompt: int
    """Tokens of the prompt whose reading is timed."""
    tokens: int
    """Tokens whose generation is timed."""
    rounds: int

    def ids(self, path: Path) -> list[int]:
        """The prompt."""
        with Model.open(path) as model:
            vocabulary = model.geometry.vocabulary
        return [int(token) for token in np.random.default_rng(1).integers(0, vocabulary, self.prompt)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one round comes to."""

    prompt_s: float
    decode_s: float
    digest: str
    """Of the logits of all generated tokens."""


def model_speed(path: Path, device: str, questions: Questions, threads: int) -> None:
    """Prints a table: experts all in the device's memory, half of them, and everything on the processor."""
    ids = questions.ids(path)
    print(f"{path.name}, prompt of {questions.prompt} tokens, {questions.tokens} generated after {SHORT}.\n")
    columns = ["where", "ready after, s", "prompt, tokens/s", "decode, tokens/s", "ms a token", "digest of the logits"]
    rows = GrowingTable(columns)
    setups: list[tuple[str, Callable[[], AbstractContextManager[Engine]], int]] = [
        ("all in VRAM", lambda: device_engine(path, device, 1.0, "f16", threads), questions.rounds),
        (
            f"half in VRAM, {threads} threads",
            lambda: device_engine(path, device, 0.5, "f16", threads),
            questions.rounds,
        ),
        (f"processor, {threads} threads", lambda: local_engine(path, "f16", threads), 1),
    ]
    for name, engine_of, rounds in setups:
        began = time.perf_counter()
        with engine_of() as engine:
            ready_s = time.perf_counter() - began
            _answer(engine, ids, 8)  # pages are touched, and memory is taken
            answers = [_answer(engine, ids, questions.tokens) for _ in range(rounds)]
        reading = spread([questions.prompt / one.prompt_s for one in answers])
        writing = spread([(questions.tokens - 1) / one.decode_s for one in answers])
        digests = sorted({one.digest[:16] for one in answers})
        rows.add([name, ready_s, reading, writing, 1000 / writing.median, " ".join(digests)])


def phases(path: Path, device: str, questions: Questions, threads: int) -> None:
    """Prints where the time of a step goes: each part waited for, and the whole with no such waits."""
    ids = questions.ids(path)
    print("Milliseconds of a step. The device is waited for after each part, which costs time itself.\n")
    found: dict[str, dict[str, float]] = {}
    for share, where in ((1.0, "all in VRAM"), (0.5, f"half in VRAM, {threads} threads")):
        with device_engine(path, device, share, "f16", threads) as engine:
            _answer(engine, ids, 8)
            plain = [_answer(engine, ids, questions.tokens) for _ in range(questions.rounds)]
        clock = _Clock(cuda.open_device(device))
        with device_engine(path, device, share, "f16", threads, wrap=clock.around) as engine:
            _answer(engine, ids, 8)
            chunks = [ids[at : at + CHUNK] for at in range(0, len(ids), CHUNK)]
            for what, parts, unsynced in (
                (
                    "1 row",
                    [ids[:SHORT], *_singles(ids, questions.tokens)],
                    _ms(plain, "decode_s", questions.tokens - 1),
                ),
                (f"{CHUNK} rows", [*chunks], _ms(plain, "prompt_s", len(chunks))),
            ):
                found[f"{where}, {what}"] = clock.measured(engine, parts) | {"whole, not waited for": unsynced}
    names = list(dict.fromkeys(name for times in found.values() for name in times))
    print(table(["part", *found], [[name, *(times.get(name, 0.0) for times in found.values())] for name in names]))


def _singles(ids: list[int], count: int) -> list[list[int]]:
    """So many chunks of one id, which differ, so that other experts are visited each time."""
    return [[ids[(SHORT + number) % len(ids)]] for number in range(count)]


def _ms(answers: list[Answer], part: str, steps: int) -> float:
    return spread([getattr(answer, part) for answer in answers]).median / steps * 1000


def _answer(engine: Engine, ids: list[int], tokens: int) -> Answer:
    """Read the whole prompt; then, in another sequence, greedily continue its first tokens."""
    sequence = engine.new_sequence(ids, 1)
    began = time.perf_counter()
    for at in range(0, len(ids), CHUNK):
        engine.step([Chunk(sequence=sequence, ids=ids[at : at + CHUNK])])
    prompt_s = time.perf_counter() - began
    sequence, digest = engine.new_sequence(ids[:SHORT], tokens), hashlib.sha256()
    next_ids, first_at = ids[:SHORT], 0.0
    for number in range(tokens):
        [logits] = engine.step([Chunk(sequence=sequence, ids=next_ids)])
        first_at = time.perf_counter() if number == 0 else first_at
        digest.update(logits[0].astype("<f4").tobytes())
        next_ids = [choose(logits[0], [], Sampling(), sequence.position)]
    return Answer(prompt_s=prompt_s, decode_s=time.perf_counter() - first_at, digest=digest.hexdigest())


class _Clock:
    """Waits for the device after every part of a step, and notes how long it took."""

    def __init__(self, device: cuda.Device) -> None:
        self._device = device
        self._steps: list[dict[str, float]] = []
        self._last = 0.0

    def around(self, dense: DenseHalf, experts: ExpertRunner) -> tuple[DenseHalf, ExpertRunner]:
        """Both halves of a model, timed."""
        return _TimedDense(dense, self), _TimedExperts(experts, self)

    def measured(self, engine: Engine, parts: list[list[int]]) -> dict[str, float]:
        """Medians in milliseconds over the steps that read these ids, one part after the other; the first is left out
        if there are several."""
        sequence, self._steps = engine.new_sequence([token for part in parts for token in part], 0), []
        for part in parts:
            self._steps.append(defaultdict(float))
            self.begin()
            [logits] = engine.step([Chunk(sequence=sequence, ids=part)])
            self.lap("checks and window")
            choose(logits[0], [], Sampling(), sequence.position)
            self.lap("choosing a token")
        steps = self._steps[1:] or self._steps
        medians = {name: float(np.median([step[name] for step in steps])) * 1000 for name in steps[0]}
        return medians | {"sum of the parts": sum(medians.values())}

    def begin(self) -> None:
        """From now on."""
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What happened since the last time was this part."""
        self._device.finish()
        now = time.perf_counter()
        if self._steps:
            self._steps[-1][name] += now - self._last
        self._last = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Its body is this part."""
        yield
        self.lap(name)


class _TimedDense:
    """A DenseHalf."""

    def __init__(self, dense: DenseHalf, clock: _Clock) -> None:
        self._dense, self._clock = dense, clock

    def new_cache(self, positions: int) -> Cache:
        return self._dense.new_cache(positions)

    def begin(self, windows: Sequence[Window]) -> list[DenseStep]:
        with self._clock.part("embedding"):
            return [_TimedStep(step, self._clock) for step in self._dense.begin(windows)]

    def logits(self, rows: list[int]) -> F32:
        with self._clock.part("head"):
            return self._dense.logits(rows)


class _TimedStep:
    """A DenseStep."""

    def __init__(self, step: DenseStep, clock: _Clock) -> None:
        self._step, self._clock = step, clock

    @property
    def sums(self) -> LayerSums:
        return self._step.sums

    def attend(self, layer: int) -> None:
        with self._clock.part("attention"):
            self._step.attend(layer)

    def feed_forward(self, layer: int) -> None:
        with self._clock.part("dense layers"):
            self._step.feed_forward(layer)

    def route(self, layer: int, quantise: bool) -> tuple[Rows, I32, F32]:
        with self._clock.part("router"):
            return self._step.route(layer, quantise)

    def combine(self) -> None:
        with self._clock.part("combine"):
            self._step.combine()


class _TimedExperts(PassingExperts):
    """An ExpertRunner."""

    def __init__(self, experts: ExpertRunner, clock: _Clock) -> None:
        super().__init__(experts)
        self._clock = clock

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        with self._clock.part("experts"):
            super().begin_layer(step, layer, rows, ids, weights, sums)

    def finish_layer(self, step: int) -> None:
        with self._clock.part("experts"):
            super().finish_layer(step)
