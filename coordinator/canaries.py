"""Canary rows: before a member's experts are used first, it computes a few rows that the local bank computes too.

That samples whether its bytes, its build and its kernels agree with ours. Work goes on meanwhile: a placement is put in
force when all of its members have shown that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import native
from coordinator.audit import Auditor, difference
from coordinator.cluster import Cluster
from coordinator.member import Member
from coordinator.replies import add_reply
from protocol.errors import ExpertError, ProtocolError
from protocol.layout import ExpertLayout
from protocol.messages import F32, I32, I64, MAX_REASON, U8, RunExperts, Sums, WorkFailed

log = logging.getLogger(__name__)

LAYERS, EXPERTS = 4, 2
"""Of a member at most so many layers, and so many experts of each, are tried: it may read all of them from a disk."""
ANSWER_S = 30.0
"""Time for one answer."""
ATTEMPT = 1 << 30
"""That no part of a step ever reaches."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Experts of one layer, and rows for them: one for each, and one for all."""

    layer: int
    expert: I32
    """(entries,): ascending."""
    row: I32
    weight: F32
    codes: np.ndarray[tuple[int, int], np.dtype[np.int8]]
    scales: F32
    values: F32
    """The one form or the other has no rows."""

    def rows(self) -> native.Rows:
        """For the kernels."""
        return native.Rows.quantised(self.codes, self.scales) if len(self.codes) else native.Rows(self.values)


def samples_of(held: U8, layout: ExpertLayout, chance: np.random.Generator) -> list[Sample]:
    """Of what a member holds (layers, experts): the first layer, the last one, and some between."""
    layers = [int(layer) for layer in np.flatnonzero(held.any(axis=1))]
    between = chance.permutation(layers[1:-1])[: LAYERS - 2]
    chosen = sorted({*layers[:1], *layers[-1:], *map(int, between)})
    return [_sample(layer, np.flatnonzero(held[layer]), layout, chance) for layer in chosen]


def _sample(
    layer: int, held: np.ndarray[tuple[int], np.dtype[np.int64]], layout: ExpertLayout, chance: np.random.Generator
) -> Sample:
    experts = np.sort(chance.permutation(held)[:EXPERTS]).astype(np.int32)
    own = np.arange(len(experts), dtype=np.int32)
    rows = len(experts) + (len(experts) > 1)  # the last one is for all of them
    shared = np.full_like(own, rows - 1)
    row = np.stack([own, shared], axis=1).ravel() if rows > len(experts) else own
    expert = np.repeat(experts, len(row) // len(experts))
    found = layout.layers[layer]
    quantised = found is not None and found.quantised_input
    return Sample(
        layer=layer,
        expert=expert,
        row=row,
        weight=(chance.integers(1, 17, len(expert)) / 16).astype(np.float32),
        codes=chance.integers(-127, 128, (rows if quantised else 0, layout.width)).astype(np.int8),
        scales=chance.uniform(0.002, 0.02, (rows if quantised else 0, layout.width // 32)).astype(np.float32),
        values=chance.normal(size=(0 if quantised else rows, layout.width)).astype(np.float32),
    )


@dataclass(slots=True, kw_only=True, eq=False)
class _Trial:
    """What one membership has still to show."""

    left: list[Sample]
    asked_at: float = 0.0
    under_way: Sample | None = None
    ours: I64 | None = None
    cannot: bool = False
    """These experts cannot be computed here, so they cannot be judged."""
    heard: list[Sums | WorkFailed] = field(default_factory=list)


class Canaries:
    """The trials of all members. Used by the step loop, between steps."""

    def __init__(
        self,
        cluster: Cluster,
        auditor: Auditor,
        layout: ExpertLayout,
        chance: np.random.Generator | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._auditor = auditor
        self._layout = layout
        self._chance = chance or np.random.default_rng()
        self._clock = clock
        self._trials: dict[int, _Trial] = {}  # by serial number

    def turn(self) -> bool:
        """Ask and judge, and compute one sample here at most; whether all who are ready have shown what they can.

        Never waits.
        """
        members = self._cluster.members
        assignment = members.assignment
        for serial in [serial for serial in self._trials if members.get(serial) is None]:
            del self._trials[serial]
        if assignment.target is None:
            return True
        computed = False
        for serial in assignment.target.members:
            member = members.get(serial)
            target = assignment.target
            if member is None or target is None:
                return False  # somebody was found gone: another target, another turn
            if member.ready == target.version and not member.quarantined:
                computed = self._advance(member, may_compute=not computed) or computed
        return (
            all(self._done(serial) for serial in assignment.target.members) if assignment.target is not None else True
        )

    def _done(self, serial: int) -> bool:
        trial = self._trials.get(serial)
        return trial is not None and trial.under_way is None and not trial.left

    def _advance(self, member: Member, *, may_compute: bool) -> bool:
        """One move in a member's trial; whether something was computed here."""
        target = self._cluster.members.assignment.target
        assert target is not None
        trial = self._trials.get(member.serial)
        if trial is None:
            held = target.held(member.serial)
            trial = self._trials[member.serial] = _Trial(left=samples_of(held, self._layout, self._chance))
        if trial.under_way is None:
            if trial.left:
                self._ask(member, trial, target.version)
            return False
        computed = trial.ours is None and not trial.cannot and may_compute
        if computed:
            self._compute(trial, trial.under_way)
        if trial.heard and (trial.ours is not None or trial.cannot):
            self._judge(member, trial, trial.under_way)
        elif not trial.heard and self._clock() - trial.asked_at > ANSWER_S:
            self._unfit(member, f"no answer to canary rows within {ANSWER_S:g} s")
        return computed

    def _ask(self, member: Member, trial: _Trial, placement: int) -> None:
        sample = trial.left.pop(0)
        trial.under_way, trial.ours, trial.cannot = sample, None, False
        trial.asked_at, trial.heard = self._clock(), []
        call = RunExperts(
            session=self._cluster.members.terms.session,
            placement=placement,
            step=self._cluster.latest_step,
            layer=sample.layer,
            attempt=ATTEMPT,
            codes=sample.codes,
            scales=sample.scales,
            values=sample.values,
            row=np.arange(sample.rows().count, dtype=np.int32),
            entry_expert=sample.expert,
            entry_row=sample.row,
            entry_weight=sample.weight,
        )
        self._cluster.ask_aside(member, call, trial.heard.append)

    def _compute(self, trial: _Trial, sample: Sample) -> None:
        try:
            trial.ours = self._auditor.sums(sample.layer, sample.rows(), sample.expert, sample.row, sample.weight)
        except ExpertError as error:
            log.warning("canary rows cannot be computed here, so nobody is tried by them: %s", error)
            trial.cannot = True

    def _judge(self, member: Member, trial: _Trial, sample: Sample) -> None:
        reply, ours = trial.heard[0], trial.ours
        trial.under_way = None
        if ours is None:
            return
        if isinstance(reply, WorkFailed):
            self._unfit(member, f"failed on canary rows: {reply.reason[:MAX_REASON]}")
            return
        theirs = np.zeros_like(ours)
        try:
            add_reply(reply, sample.row, theirs)
        except ProtocolError as error:
            self._unfit(member, f"a wrong answer to canary rows: {error}")
            return
        self._cluster.counters.canaries += 1
        found = difference(sample.layer, sample.expert, sample.row, ours, theirs)
        if found is not None:
            self._cluster.quarantine(member, found)
        elif not trial.left:
            log.info("%s %s is trusted: its canary rows are ours", member.hello.role, member.name)

    def _unfit(self, member: Member, reason: str) -> None:
        self._trials[member.serial].left.clear()
        self._cluster.give_up(member, reason)
