"""What the coordinator's own work costs with a model on this machine: tried on random tokens before anything runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

import numpy as np

import native
from coordinator.choosing import choose
from coordinator.dense import DenseModel
from coordinator.dense_half import Rows, host_rows
from coordinator.engine import Chunk, Engine
from coordinator.sampling import Sampling
from coordinator.sums import LayerSums
from coordinator.tried_calls import TriedCalls, tried_calls
from expert_worker.bank import ExpertBank
from protocol.messages import F32, I32
from protocol.model import Model
from protocol.stock import Stock

MANY = 8
"""Rows of a step from which the cost of each row more is learnt."""
UNTIMED = 1
"""Steps of each kind that come before: they fault pages in."""
SPARSE = 8
"""The local bank computes one layer in so many: enough to time it, and the dense half is timed without what that does
to the caches in most layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCosts:
    """In seconds."""

    layer_s: float
    """The dense half of a layer, of one row."""
    layer_row_s: float
    """Of each row more."""
    step_s: float
    """What a step needs once, of one row: embedding, head, choosing."""
    step_row_s: float
    """Of each row more."""
    entry_s: float
    """The local bank, for one expert of one row."""
    call_s: float
    """Making one call, and handing it over."""
    answer_s: float
    """Taking in one answer."""
    apart_s: float
    """Between the two, with a process of this machine: waking both up, checking and packing; not its kernels."""

    def dense_s(self, layers: int) -> float:
        """All but experts, of one row."""
        return self.step_s + layers * self.layer_s


@dataclass(slots=True, eq=False)
class _Stopwatch:
    """An `ExpertRunner` that times what lies between layers. A few layers are computed, by the local bank; all others
    are asked of a process that answers zeros."""

    bank: ExpertBank
    quantised: dict[int, bool]
    calls: TriedCalls
    layer_s: list[float] = field(default_factory=list)
    entry_s: list[float] = field(default_factory=list)
    apart_s: float = 0.0
    _resumed: float | None = None
    _begun: int = 0

    halves_from = None
    """Windows stay whole."""

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Note how long it took until here; add nothing, or all, to `sums`."""
        began = time.perf_counter()
        if self._resumed is not None:
            self.layer_s.append(began - self._resumed)
        self._begun += 1
        if self._begun % SPARSE == 1:
            self._compute(layer, rows, ids, weights, sums)
        else:
            own, quantised = host_rows(rows, self.quantised[layer]), self.quantised[layer]
            self.calls.call(layer, own, quantised, ids, weights, sums.to_host())
        self.apart_s += time.perf_counter() - began

    def finish_layer(self, step: int) -> None:
        """From here on it is the dense half again."""
        self._resumed = time.perf_counter()

    def abandon(self) -> None:
        """Nothing is under way."""

    def reset(self) -> None:
        """A step begins."""
        self._resumed, self.apart_s, self._begun = None, 0.0, 0

    def _compute(self, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        order = np.lexsort((np.repeat(np.arange(len(ids)), ids.shape[1]), ids.ravel()))
        row = (order // ids.shape[1]).astype(np.int32)
        expert, weight = ids.ravel()[order], weights.ravel()[order]
        own, singles = host_rows(rows, self.quantised[layer]), np.empty((0, self.bank.layout.width), np.float32)
        began = time.perf_counter()
        self.bank.run(layer, own, expert, row, weight, -1 - row, singles, sums.to_host())
        self.entry_s.append((time.perf_counter() - began) / ids.size)


def own_costs(model: Model, threads: int, *, steps: int = 4, kv: str = "f16", seed: int = 0) -> OwnCosts:
    """Tried with `threads` on this machine's processor: `steps` steps of one row, and as many of MANY rows.

    Pages that are not in memory are read first, of the dense weights and of a few experts. ExpertmeshError if the model
    cannot be computed.
    """
    pool = native.Pool(threads)
    quantised = {number: layer.quantised_input for number, layer in model.layout.with_experts()}
    stock, used = Stock.of(model.layout), model.geometry.experts_used
    call_bytes = used * max(stock.slot_bytes)
    with ExpertBank(model, pool) as bank, tried_calls(model.geometry.width, stock.experts, call_bytes) as calls:
        watch = _Stopwatch(bank, quantised, calls)
        with Engine(model, watch, DenseModel(model, pool, MANY, kv)) as engine:
            layer_s, step_s = _timed(engine, watch, model, 1, steps, seed)
            entry_s = _typical(watch.entry_s)
            call_s, answer_s, apart_s = (_middle(times) for times in (calls.send_s, calls.take_s, calls.apart_s))
            many_layer_s, many_step_s = _timed(engine, watch, model, MANY, steps, seed)
    return OwnCosts(
        layer_s=layer_s,
        layer_row_s=max(0.0, many_layer_s - layer_s) / (MANY - 1),
        step_s=step_s,
        step_row_s=max(0.0, many_step_s - step_s) / (MANY - 1),
        entry_s=entry_s,
        call_s=call_s,
        answer_s=answer_s,
        apart_s=apart_s,
    )


def _timed(engine: Engine, watch: _Stopwatch, model: Model, rows: int, steps: int, seed: int) -> tuple[float, float]:
    """Seconds of a layer, and of all that is in no layer, of steps that give each of `rows` conversations a token."""
    rng = np.random.default_rng(seed)
    going = [engine.new_sequence([0], steps + UNTIMED) for _ in range(rows)]
    layers, rest = [], []
    for number in range(-UNTIMED, steps):
        ids = rng.integers(0, model.geometry.vocabulary, rows)
        watch.reset()
        watch.layer_s.clear()
        if number < 0:
            watch.entry_s.clear()
            watch.calls.forget()
        began = time.perf_counter()
        logits = engine.step([Chunk(sequence=one, ids=[int(each)]) for one, each in zip(going, ids, strict=True)])
        _choose(logits)
        took = time.perf_counter() - began - watch.apart_s
        if number >= 0 and watch.layer_s:
            layers.append(_typical(watch.layer_s))
            rest.append(max(0.0, took - layers[-1] * len(model.layout.layers)))
    return _typical(layers), _typical(rest)


def _typical(seconds: Sequence[float]) -> float:
    """The first quartile: whatever else runs on the machine only adds to it. 0 if nothing was timed."""
    return quantiles(seconds, n=4, method="inclusive")[0] if len(seconds) > 1 else sum(seconds)


def _middle(seconds: Sequence[float]) -> float:
    """The median: processes wake up sooner or later whatever else runs. 0 if nothing was timed."""
    return median(seconds) if seconds else 0.0


def _choose(logits: Sequence[F32]) -> None:
    for of_one in logits:
        choose(of_one[-1], [0], Sampling(), 1)
