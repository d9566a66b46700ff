"""An engine on a device, without workers: what tests and benchmarks ask of it beside one on the processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import native
from coordinator.dense_half import DenseHalf
from coordinator.devices import opened
from coordinator.engine import Chunk, Engine, ExpertRunner
from coordinator.local import LocalExperts
from expert_worker.bank import ExpertBank
from protocol.gib import GIB
from protocol.messages import F32, MAX_ROWS
from protocol.model import Model
from protocol.stock import Stock

CUDA = "cuda:0"


@contextmanager
def device_engine(
    path: Path,
    name: str = CUDA,
    share: float = 1.0,
    kv: str = "f32",
    threads: int = 1,
    wrap: Callable[[DenseHalf, ExpertRunner], tuple[DenseHalf, ExpertRunner]] = lambda *both: both,
) -> Iterator[Engine]:
    """The model of `path` on the device, with this share of its experts; the processor computes the others.

    `wrap` may put something around the two halves of the model.
    """
    pool, gib = native.Pool(threads), experts_gib(path, share)
    with (
        Model.open(path) as model,
        ExpertBank(model, pool) as bank,
        opened(name, gib, model, pool, max_rows=MAX_ROWS, kv=kv) as devices,
    ):
        for _ in devices.fill():
            pass
        dense, experts = wrap(devices.dense, LocalExperts(bank, devices.slots))
        with Engine(model, experts, dense) as engine:
            yield engine


def experts_gib(path: Path, share: float) -> float:
    """Memory for this share of a model's experts; a trifle more, so that whole experts are not lost in rounding."""
    with Model.open(path) as model:
        return share * Stock.of(model.layout).bytes / GIB * (1 + 1e-6)


def read_together(engine: Engine, prompts: Sequence[Sequence[int]], chunk: int) -> list[F32]:
    """The logits of every position (len(prompt), vocabulary) of each prompt, read at once, `chunk` rows each a step."""
    sequences = [engine.new_sequence(prompt, 0) for prompt in prompts]
    logits: list[list[F32]] = [[] for _ in prompts]
    for at in range(0, max(map(len, prompts)), chunk):
        going = [number for number, prompt in enumerate(prompts) if at < len(prompt)]
        chunks = [
            Chunk(sequence=sequences[number], ids=prompts[number][at : at + chunk], logits="all") for number in going
        ]
        for number, found in zip(going, engine.step(chunks), strict=True):
            logits[number].append(found)
    return [np.concatenate(parts) for parts in logits]
