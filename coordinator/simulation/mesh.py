"""A coordinator in simulated time: its real members, cluster and dispatcher, between simulated sockets and workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

import native
from coordinator.cluster import Cluster
from coordinator.demand import Demand
from coordinator.dispatch import MeshExperts
from coordinator.halves import Halves, cut_of
from coordinator.hello import Terms
from coordinator.members import Members
from coordinator.planner import Planner
from coordinator.profile import Profile
from coordinator.simulation.network import Port
from coordinator.simulation.processor import Processor
from coordinator.simulation.scenario import READING, Kind, Scenario, Varied
from coordinator.simulation.sockets import SimulatedSocket
from coordinator.simulation.timeline import Timeline
from coordinator.simulation.worker import SimulatedWorker, World
from coordinator.sums import LayerSums
from expert_worker.bank import ExpertBank
from protocol.errors import ConfigError
from protocol.geometry import Geometry
from protocol.layout import ExpertLayout
from protocol.messages import F32, I32, I64

COLUMNS = 32
"""Of simulated rows: enough for the code that takes them. What they would take is in the scenario."""
FINGERPRINT = "0" * 16
HERE = "here"
"""What the coordinator's machine is called."""
JOIN_S = 3600.0
"""Simulated time after which workers that are not ready never will be."""


@dataclass(frozen=True, slots=True)
class _LayerForm:
    quantised_input: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the dispatcher asks of an ExpertLayout."""

    width: int
    layers: tuple[int, ...]
    quantised: bool

    def with_experts(self) -> Iterator[tuple[int, _LayerForm]]:
        """Layers that have experts."""
        return ((layer, _LayerForm(self.quantised)) for layer in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Geometry:
    """What `Halves` asks of a Geometry."""

    experts: int
    experts_used: int


class _Bank:
    """The local bank: only takes its time."""

    def __init__(self, timeline: Timeline, entry_s: float) -> None:
        self._timeline = timeline
        self._entry_s = entry_s

    def run(
        self,
        layer: int,
        rows: native.Rows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: F32,
        sums: I64,
    ) -> None:
        distinct = 1 + int(np.count_nonzero(np.diff(entry_expert)))
        seconds = self._entry_s * (READING * distinct + len(entry_expert)) / (READING + 1)
        self._timeline.spend(seconds, "kernels")


class SimulatedMesh:
    """A cluster that computes steps. Used by one thread."""

    def __init__(self, scenario: Scenario) -> None:
        """All workers are on their way; see `gather`."""
        self.scenario = scenario
        shape, costs = scenario.shape, scenario.costs
        self.timeline = timeline = Timeline()
        self._rng = np.random.default_rng(scenario.seed)
        sizes = shape.row_bytes_out, shape.width
        self._control = SimulatedSocket(timeline, costs, *sizes)
        self._work = SimulatedSocket(timeline, costs, *sizes)
        layers = len(shape.stock.slot_bytes)
        geometry = {"layers": layers, "experts": shape.stock.experts}
        terms = Terms(
            session="simulation",
            fingerprint=FINGERPRINT,
            geometry=geometry,
            work="ipc://@work",
            beat_s=scenario.beat_s,
        )
        tokens = itertools.count()
        uses = shape.uses
        rank = None if uses is None else Profile(fingerprint=FINGERPRINT, rows=1, counts=uses).rank()
        self.members = Members(
            terms,
            Planner(
                stock=shape.stock,
                own=shape.stock.nothing(),
                rank=rank,
                demand=Demand.of(shape.counts, shape.used),
                replicas=scenario.replicas,
                even=scenario.even,
            ),
            expected=scenario.workers,
            fresh_token=lambda: f"token-{next(tokens)}",
            host=HERE,
        )
        self.cluster = Cluster(
            self._control, self._work, self.members, wait=self._wait, limits=scenario.limits, clock=timeline
        )
        layout = cast(ExpertLayout, _Layout(COLUMNS, shape.stock.layers, shape.quantised))
        bank = cast(ExpertBank, _Bank(timeline, costs.entry_s))
        sizes_of_layers = cast(Geometry, _Geometry(experts=shape.stock.experts, experts_used=shape.used))
        halves = Halves.of("auto", HERE, "cpu", sizes_of_layers)
        self.experts = MeshExperts(self.cluster, bank, layout, halves=halves, clock=timeline)
        self._world = self._shared(geometry)
        self._here = Processor(timeline, scenario.cores)
        self.workers: list[SimulatedWorker] = []
        for kind in scenario.kinds:
            for number in range(kind.count):
                self.add(kind, f"{kind.name}-{number}")
        self._steps = 0

    def add(self, kind: Kind, name: str) -> SimulatedWorker:
        """One worker more, that is on its way."""
        processor = self._here if kind.here else Processor(self.timeline)
        worker = SimulatedWorker(self._world, kind, name, HERE if kind.here else name, processor, self._rng)
        self.workers.append(worker)
        worker.join(self.timeline.now)
        return worker

    def _shared(self, geometry: dict[str, int]) -> World:
        scenario = self.scenario
        rate = Varied(mean=scenario.port_bytes_per_s)
        return World(
            timeline=self.timeline,
            shape=scenario.shape,
            control=self._control,
            work=self._work,
            out=Port(rate, self._rng),
            back=Port(rate, self._rng),
            fingerprint=FINGERPRINT,
            geometry=geometry,
            beat_s=scenario.beat_s,
            columns=COLUMNS,
        )

    def gather(self) -> None:
        """Wait until all workers hold what is theirs. ConfigError if that never happens."""
        self.wait_for_placement(JOIN_S)
        if not self.members.assignment.ready:
            raise ConfigError(
                f"{len(self.members)} of {self.scenario.workers} simulated workers joined, and no placement was in "
                f"force within {JOIN_S:g} s: a shorter round trip or a faster line is expected"
            )

    def wait_for_placement(self, seconds: float) -> None:
        """Until a placement is in force that nobody is getting ready for another after, or for so long."""
        until = self.timeline.now + seconds
        self.attend()
        while not self.members.assignment.ready and self.timeline.now < until:
            self.cluster.wait(0.05)
            self.attend()

    def pass_time(self, seconds: float) -> None:
        """Without a step."""
        until = self.timeline.now + seconds
        while self.timeline.now < until:
            self.cluster.wait(until - self.timeline.now)
            self.attend()

    def attend(self) -> None:
        """What the coordinator does between two steps."""
        self.cluster.attend()
        self.members.assignment.switch()

    def step(self, routed: I32) -> float:
        """One step of all rows, routed as (layers, rows, used) says; how long it took, in seconds."""
        costs, shape, began = self.scenario.costs, self.scenario.shape, self.timeline.now
        self.attend()
        parts = self._parts(routed.shape[1])
        under_way: dict[int, bool] = {}
        for layer in range(len(shape.stock.slot_bytes)):
            for number, rows in parts:
                self._finish(number, under_way)
                self.timeline.spend(costs.layer_s + (len(rows) - 1) * costs.layer_row_s, "dense")
                if shape.stock.slot_bytes[layer]:
                    self._begin(number, layer, routed[layer, rows.start : rows.stop])
                    under_way[number] = True
        for number, _ in parts:
            self._finish(number, under_way)
        self.timeline.spend(costs.step_s + (routed.shape[1] - 1) * costs.step_row_s, "dense")
        return self.timeline.now - began

    def _parts(self, rows: int) -> list[tuple[int, range]]:
        """The window, whole or in two halves, as the engine has it: numbers of steps, and rows."""
        least = self.experts.halves_from
        if least is None or rows < max(2, least):
            bounds = [range(rows)]
        else:
            cut = cut_of(range(rows + 1))
            bounds = [range(cut), range(cut, rows)]
        numbers = range(self._steps, self._steps + len(bounds))
        self._steps = numbers.stop
        return list(zip(numbers, bounds, strict=True))

    def _begin(self, number: int, layer: int, ids: I32) -> None:
        costs = self.scenario.costs
        self.timeline.spend(costs.plan_s + costs.member_s * len(self.members), "sending")
        rows = native.Rows(np.zeros((len(ids), COLUMNS), np.float32))
        sums = LayerSums(host=np.zeros((len(ids), COLUMNS), np.int64))
        self.experts.begin_layer(number, layer, rows, ids, np.ones(ids.shape, np.float32), sums)

    def _finish(self, number: int, under_way: dict[int, bool]) -> None:
        if under_way.pop(number, False):
            self.experts.finish_layer(number)

    def _wait(self, timeout_s: float) -> list[SimulatedSocket]:
        """As `wire.wait`."""
        sockets = (self._work, self._control)
        self.timeline.wait(timeout_s, lambda: any(socket.inbox for socket in sockets))
        return [socket for socket in sockets if socket.inbox]
