"""What is simulated, as values: a model's shape, the coordinator's costs, workers, their network, and mishaps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from coordinator.deadlines import CallLimits
from coordinator.profile import F64
from protocol.model import Model
from protocol.stock import Stock

READING = 5.0
"""Reading an expert's weights takes as long as so many of its rows (as in native/src/plan.cpp)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """A figure with chance in it: log-normal, with these standard deviations of the logarithm."""

    mean: float
    between: float = 0.0
    """From one worker to another, for as long as these live."""
    within: float = 0.0
    """From one time to the next."""

    def of_one(self, rng: np.random.Generator) -> Self:
        """Of one worker, drawn: what is left of chance is from time to time."""
        return type(self)(mean=self.mean * _factor(rng, self.between), within=self.within)

    def drawn(self, rng: np.random.Generator) -> float:
        """Of one time."""
        return self.mean * _factor(rng, self.within)


ENDLESS = Varied(mean=math.inf)
"""Of a line that delays nothing."""
EXIT_S = Varied(mean=6e-3, within=0.5)
"""Of a killed process whose experts are small: threads end and memory is given back before connections are closed.
Measured: 1 to 10 ms, and 10 ms more for each GiB that it has touched."""


def _factor(rng: np.random.Generator, deviation: float) -> float:
    """1 on average."""
    return math.exp(deviation * (rng.standard_normal() - deviation / 2)) if deviation else 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """What matters of a model."""

    stock: Stock
    used: int
    """Experts that each row uses of a layer."""
    width: int
    """Columns of an activation row."""
    quantised: bool = True
    """Whether activations travel as int8."""
    uses: F64 | None = None
    """(layers, experts): how often each expert is used, from a profile; None: all alike."""

    @classmethod
    def of(cls, model: Model, uses: F64 | None = None) -> Self:
        """Of a model that is open."""
        quantised = all(layer.quantised_input for _, layer in model.layout.with_experts())
        geometry = model.geometry
        stock = Stock.of(model.layout)
        return cls(stock=stock, used=geometry.experts_used, width=geometry.width, quantised=quantised, uses=uses)

    @property
    def counts(self) -> F64:
        """(layers, experts): `uses`, or zeros."""
        return np.zeros((len(self.stock.slot_bytes), self.stock.experts)) if self.uses is None else self.uses

    @property
    def row_bytes_out(self) -> int:
        """Bytes of an activation row in a call."""
        return self.width + self.width // 8 if self.quantised else 4 * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the coordinator's own work takes, in seconds."""

    layer_s: float
    """The dense half of a layer, of one row."""
    layer_row_s: float
    """Of each row more."""
    step_s: float
    """What a step needs once, of one row: embedding, head, choosing, telling."""
    step_row_s: float
    """Of each row more."""
    entry_s: float
    """The local bank, for one expert of one row."""
    plan_s: float = 60e-6
    """Planning a layer's experts, and looking at the sockets."""
    member_s: float = 0.1e-6
    """Planning: of each worker there is."""
    call_s: float = 60e-6
    """Making one call, and handing it over."""
    answer_s: float = 60e-6
    """Taking in one answer."""
    control_s: float = 40e-6
    """Any other message, in or out."""
    byte_s: float = 0.3e-9
    """Each byte of a call or an answer, beside that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Workers that are alike but for chance."""

    name: str
    count: int
    entry_s: Varied
    """In its kernels, for one expert of one row."""
    answer_s: Varied
    """That a call takes in its process beside its kernels: waking up, checking, packing."""
    round_trip_s: Varied
    """Of a small message, there and back."""
    bytes_per_s: Varied = ENDLESS
    """Of its line, each way."""
    load_bytes_per_s: float = 1e9
    """Rate at which it makes experts ready that it did not hold."""
    threads: int = 1
    room: int = -1
    """Bytes of experts that it can hold; -1: any number of them."""
    here: bool = False
    """They run on the coordinator's machine and share its cores; else each has a machine of its own."""
    pages: str = ""
    """Equal for those who compute from the same memory; empty: each from its own."""
    exit_s: Varied = EXIT_S
    """From its end, when it computes nothing any more, until its machine closes its connections."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """A cluster, what it is asked, and the seed of all chance in it."""

    shape: Shape
    costs: Costs
    kinds: tuple[Kind, ...]
    rows: int = 1
    """Of each step: conversations that are under way."""
    cores: float = math.inf
    """Of the coordinator's machine, for the workers that run there."""
    port_bytes_per_s: float = math.inf
    """Of the coordinator's own line, each way, which all calls and answers share."""
    replicas: float = 1.0
    """Copies of experts, for each of them."""
    even: bool = False
    """Experts are shared out by threads alone, as of Members."""
    limits: CallLimits = field(default_factory=CallLimits)
    beat_s: float = 0.5
    seed: int = 0

    @property
    def workers(self) -> int:
        """How many there are."""
        return sum(kind.count for kind in self.kinds)
