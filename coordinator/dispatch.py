"""One layer's experts, by whoever holds them: plan, ask, launch the device's share, compute the local one, gather.

Members, the coordinator's device and its processor work at the same time. Every (row, expert) entry is added to the
sums exactly once. A part whose worker is late, lost or answers badly is taken
from it and computed by the local bank as a new attempt; because sums are exact integers and experts are pure functions,
that cannot change a bit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import native
from coordinator.cluster import Cluster, Seat
from coordinator.dense_half import Rows, host_rows
from coordinator.device_share import DeviceShare
from coordinator.layer_times import LayerTime, LayerTimes
from coordinator.placement import Placement
from coordinator.plan import DEVICE, LOCAL, Coverage, Part, plan_layer
from coordinator.replies import add_reply
from coordinator.sums import LayerSums
from expert_worker.bank import ExpertBank
from peer_gpu.slots import ExpertSlots
from protocol.errors import ExpertError, ProtocolError, RequestError
from protocol.layout import ExpertLayout
from protocol.messages import F32, I8, I32, MAX_REASON, RunExperts, Sums, WorkFailed

log = logging.getLogger(__name__)

ATTEND_S = 0.005
"""How often the sockets are looked at, at least; whoever waits for answers looks at them anyway."""

_NO_CODES = np.empty((0, 0), np.int8)
_NO_FLOATS = np.empty((0, 0), np.float32)


@dataclass(slots=True, kw_only=True, eq=False)
class _Layer:
    """One layer under way."""

    step: int
    layer: int
    rows: Rows
    sums: LayerSums
    coverage: Coverage
    placement: Placement
    """That the plan was made from."""
    awaited: dict[Seat, Part] = field(default_factory=dict)
    """What has been asked of whom, and not answered."""
    local_s: float = 0.0
    """In the local bank."""
    wait_s: float = 0.0
    """Waiting for answers."""
    device_s: float = 0.0
    """Waiting for the device after that."""
    busy_s: float = 0.0
    """Of the busiest worker in its kernels."""


class MeshExperts:
    """An `ExpertRunner` over the members of a cluster and the coordinator's own slots and bank."""

    def __init__(
        self,
        cluster: Cluster,
        bank: ExpertBank,
        layout: ExpertLayout,
        slots: ExpertSlots | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`slots` hold what the members' placements leave to DEVICE; None if that is nothing."""
        self.times = LayerTimes()
        self._share = None if slots is None else DeviceShare(slots)
        self._cluster = cluster
        self._bank = bank
        self._quantised = {number: layer.quantised_input for number, layer in layout.with_experts()}
        self._no_singles = np.empty((0, layout.width), np.float32)
        self._clock = clock

    def run_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Add every entry of ids and weights (rows, k) to `sums`, which arrives zeroed.

        RequestError, before anybody is asked, for bad ids or weights; ExpertError if the local bank cannot compute
        what nobody else did. `sums` is then of no use.
        """
        began = self._clock()
        self._cluster.attend(ATTEND_S)
        if self._cluster.closing:
            raise RequestError("the coordinator is stopping")
        placement = self._cluster.members.active
        parts = plan_layer(layer, ids, weights, self._cluster.owners(layer))
        planned = self._clock()
        work = _Layer(step=step, layer=layer, rows=rows, sums=sums, coverage=Coverage(ids.size), placement=placement)
        try:
            local = self._ask(work, [part for part in parts if part.holder != DEVICE])
            if parts[0].holder == DEVICE:  # they ascend, and it is the lowest
                self._launch(work, parts[0])
            asked = self._clock()
            for part in local:
                self._compute(work, part)
            self._gather(work)
            self._settle(work)
        finally:
            for seat in work.awaited:  # left by an exception: what still comes is late
                seat.line.give_up()
            if self._share is not None:
                self._share.abandon()
        if work.coverage.missing:
            raise ExpertError(layer, -1, f"{work.coverage.missing} of {ids.size} entries were computed by nobody")
        ended = self._clock()
        self.times.add(
            LayerTime(
                plan=planned - began,
                send=asked - planned,
                local=work.local_s,
                wait=work.wait_s,
                device=work.device_s,
                take=ended - asked - work.local_s - work.wait_s - work.device_s,
                total=ended - began,
                kernel=max(work.local_s, work.busy_s) + work.device_s,
            )
        )

    # --- asking -----------------------------------------------------------------------------------------------

    def _ask(self, work: _Layer, parts: list[Part]) -> list[Part]:
        """Send one call per member; returns the parts that are left to the local bank."""
        if not parts:
            return []
        local = []
        activations = self._activations(work)  # fetched before the device has more to do
        for part in parts:
            if part.holder == LOCAL:
                local.append(part)
            elif not self._send(work, part, *activations):
                local.append(self._plan_again(part))
        return local

    def _activations(self, work: _Layer) -> tuple[I8, F32, F32]:
        """Codes and scales, or values, of all rows: whichever form travels in this layer."""
        rows = self._host_rows(work)
        if self._quantised[work.layer]:
            return *rows.quantise(), _NO_FLOATS
        return _NO_CODES, _NO_FLOATS, rows.values()

    def _send(self, work: _Layer, part: Part, codes: I8, scales: F32, values: F32) -> bool:
        seat = self._cluster.seat(part.holder)
        if seat is None or self._gave_up(work, part):
            return False
        rows, index = part.distinct_rows(work.rows.count)
        if len(rows) < work.rows.count:  # only what this worker needs
            codes, scales = (codes[rows], scales[rows]) if len(codes) else (codes, scales)
            values = values[rows] if len(values) else values
        members = self._cluster.members
        limit_s = seat.line.latency.limit_s(len(part))
        message = RunExperts(
            session=members.terms.session,
            placement=members.active.version,
            step=work.step,
            layer=work.layer,
            attempt=part.attempt,
            codes=codes,
            scales=scales,
            values=values,
            row=rows,
            entry_expert=part.expert,
            entry_row=index,
            entry_weight=part.weight,
        )
        if not self._cluster.call(seat, part, message, limit_s):
            return False
        work.awaited[seat] = part
        return True

    def _gave_up(self, work: _Layer, part: Part) -> bool:
        """Whether its holder has to give up some of it: it gets another set, for another turned out to be gone."""
        active = self._cluster.members.active
        return active is not work.placement and not (active.owner[work.layer, part.expert] == part.holder).all()

    def _plan_again(self, part: Part) -> Part:
        self._cluster.counters.replans += 1
        return part.again_locally()

    # --- computing here ---------------------------------------------------------------------------------------

    def _launch(self, work: _Layer, part: Part) -> None:
        """The device begins with its part, and adds it to sums of its own."""
        assert self._share is not None  # without slots nothing is placed there
        _cover(work, part)
        self._share.launch(work.layer, work.rows, part, work.sums)

    def _settle(self, work: _Layer) -> None:
        """Wait until the device has done its part."""
        if self._share is None or not (entries := self._share.under_way):
            return
        began = self._clock()
        self._share.settle()
        work.device_s = self._clock() - began
        self._cluster.counters.device_entries += entries

    def _compute(self, work: _Layer, part: Part) -> None:
        """The local bank adds its part straight to the host's sums."""
        _cover(work, part)
        began = self._clock()
        rows, slots, sums = self._host_rows(work), -1 - part.row, work.sums.to_host()
        self._bank.run(work.layer, rows, part.expert, part.row, part.weight, slots, self._no_singles, sums)
        work.local_s += self._clock() - began
        self._cluster.counters.local_entries += len(part)

    def _host_rows(self, work: _Layer) -> native.Rows:
        """All rows in the form that travels in this layer."""
        return host_rows(work.rows, self._quantised[work.layer])

    # --- gathering --------------------------------------------------------------------------------------------

    def _gather(self, work: _Layer) -> None:
        """Take answers as they come; what is late or lost is computed here."""
        while work.awaited:
            left_s = min(map(self._cluster.time_left, work.awaited))
            began = self._clock()
            heard = self._cluster.wait(left_s)
            work.wait_s += self._clock() - began
            if heard:
                self._take_answers(work)
            elif left_s > 0:
                self._cluster.probe(work.awaited)
            if left_s <= 0:  # only now, for an answer that lies in the socket is not late
                self._replace_late(work)

    def _take_answers(self, work: _Layer) -> None:
        for seat, message in self._cluster.answers():
            self._take(work, seat, message)
            if not work.awaited:
                return

    def _take(self, work: _Layer, seat: Seat, message: Sums | WorkFailed) -> None:
        part = work.awaited.pop(seat)
        self._cluster.close_call(seat, message)
        if isinstance(message, Sums) and self._add(work, seat, part, message):
            return
        self._compute(work, self._plan_again(part))
        if isinstance(message, WorkFailed):  # it could be done here; if not, the worker is not to blame
            self._cluster.strike(seat, message.reason[:MAX_REASON])

    def _add(self, work: _Layer, seat: Seat, part: Part, reply: Sums) -> bool:
        """Add a good answer to the sums; a bad one is counted and dropped."""
        try:
            add_reply(reply, part.row, work.sums.to_host())
        except ProtocolError as error:
            self._cluster.counters.dropped += 1
            self._cluster.strike(seat, f"a wrong answer for layer {work.layer}: {error}")
            return False
        _cover(work, part)
        work.busy_s = max(work.busy_s, reply.busy_us * 1e-6)
        self._cluster.credit(seat, len(part), reply)
        return True

    def _replace_late(self, work: _Layer) -> None:
        """Compute here what is past its deadline, and what was asked of a worker that is gone."""
        for seat in tuple(work.awaited):
            if self._cluster.time_left(seat) > 0:
                continue
            part = work.awaited.pop(seat)
            log.warning("no answer of worker %s for layer %d: computed here", seat.member.name, work.layer)
            seat.line.give_up()
            self._compute(work, self._plan_again(part))


def _cover(work: _Layer, part: Part) -> None:
    """Note that its entries are in the sums, or will be next. ExpertError if one was before: these are no use then."""
    if not work.coverage.accept(part):
        raise ExpertError(work.layer, -1, "entries were planned for two holders")
