"""One layer's experts, by whoever holds them: plan, ask, launch the device's share, compute the local one, gather.

Members, the coordinator's device and its processor work at the same time. Layers of two steps may be under way, those
of a window's halves: then members compute one while the dense half of the other is computed here. Every (row, expert)
entry is added to the sums exactly once. A part whose worker is late, lost or answers badly is taken from it and
computed by the local bank as a new attempt; because sums are exact integers and experts are pure functions, that cannot
change a bit.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import native
from coordinator.audit import Auditor, difference
from coordinator.cluster import Cluster, Seat
from coordinator.dense_half import Rows, host_rows
from coordinator.device_share import DeviceShare
from coordinator.halves import Halves
from coordinator.layer_inputs import LayerInputs
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Left:
    """A part that is left to the local bank."""

    part: Part
    failed: Seat | None = None
    """Who could not compute it, and is to blame if it can be computed here."""
    reason: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class _Layer:
    """One layer of one step under way."""

    step: int
    layer: int
    rows: Rows
    sums: LayerSums
    coverage: Coverage
    placement: Placement
    """That the plan was made from."""
    awaited: dict[Seat, Part] = field(default_factory=dict)
    """What has been asked of whom, and not answered."""
    local: deque[_Left] = field(default_factory=deque)
    """What is left to the local bank, and not computed yet."""
    plan_s: float = 0.0
    """Taking in what came meanwhile, and planning."""
    send_s: float = 0.0
    """Asking, and launching what the device computes."""
    begun_at: float = 0.0
    """When all that was done."""
    local_s: float = 0.0
    """In the local bank."""
    wait_s: float = 0.0
    """Waiting for answers."""
    on_device: int = 0
    """Entries that the device was given, and not waited for."""
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
        halves: Halves | None = None,
        inputs: LayerInputs | None = None,
        auditor: Auditor | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`slots` hold what the members' placements leave to DEVICE; None if that is nothing. `halves`: Halves().

        `inputs` tells those who look ahead; None tells nobody. The `auditor` says which answers it computes again.
        """
        self.times = LayerTimes()
        self._share = None if slots is None else DeviceShare(slots)
        self._cluster = cluster
        self._halves = halves or Halves()
        self._inputs = inputs
        self._auditor = auditor
        self._layers: dict[int, _Layer] = {}  # by step
        self._bank = bank
        self._quantised = {number: layer.quantised_input for number, layer in layout.with_experts()}
        self._no_singles = np.empty((0, layout.width), np.float32)
        self._clock = clock

    @property
    def halves_from(self) -> int | None:
        """Rows from which on a window is computed in halves, if it is at all: see `Halves`."""
        members = self._cluster.members
        holders = map(members.get, members.active.members)
        return self._halves.least_rows(holder.hello.host for holder in holders if holder is not None)

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Have others begin with the entries of ids and weights (rows, k); `sums` arrives zeroed.

        RequestError, before anybody is asked, for bad ids or weights.
        """
        began = self._clock()
        if self._cluster.heard(ATTEND_S):
            self._take_answers()
        if self._cluster.closing:
            raise RequestError("the coordinator is stopping")
        placement, now = self._cluster.members.active, self._cluster.placement()
        parts = plan_layer(layer, ids, weights, now.owner[layer], now.mates)
        planned = self._clock()
        work = _Layer(step=step, layer=layer, rows=rows, sums=sums, coverage=Coverage(ids.size), placement=placement)
        self._layers[step] = work
        on_host = [part for part in parts if part.holder != DEVICE]
        self._ask(work, on_host)
        if parts[0].holder == DEVICE:  # they ascend, and it is the lowest
            self._launch(work, parts[0])
        if on_host and self._inputs is not None and self._inputs.wanted(layer):
            self._inputs.publish(step, layer, *self._activations(work))  # they are on the host by now
        work.begun_at = self._clock()
        work.plan_s, work.send_s = planned - began, work.begun_at - planned

    def finish_layer(self, step: int) -> None:
        """Compute what is left to this process, and wait for the others: every entry is in the sums then.

        ExpertError if the local bank cannot compute what nobody else did. The sums are then of no use.
        """
        work = self._layers[step]
        resumed = self._clock()
        self._gather(work)
        self._settle(work)
        if missing := work.coverage.missing:
            raise ExpertError(work.layer, -1, f"{missing} entries were computed by nobody")
        del self._layers[step]
        here_s, elsewhere_s = self._clock() - resumed, resumed - work.begun_at
        self.times.add(
            LayerTime(
                plan=work.plan_s,
                send=work.send_s,
                local=work.local_s,
                wait=work.wait_s,
                device=work.device_s,
                take=here_s - work.local_s - work.wait_s - work.device_s,
                total=work.plan_s + work.send_s + here_s,
                kernel=max(work.local_s, work.busy_s - elsewhere_s) + work.device_s,
            )
        )

    def inputs_report(self) -> dict[str, int]:
        """Layer inputs that were published, how often somebody fell behind, what it took; empty if nobody is told."""
        return {} if self._inputs is None else self._inputs.report()

    def abandon(self) -> None:
        """Give up what was begun and not finished: what still comes is late."""
        for work in self._layers.values():
            for seat in work.awaited:
                seat.line.give_up(work.step)
        self._layers.clear()
        if self._share is not None:
            self._share.abandon()

    # --- asking -----------------------------------------------------------------------------------------------

    def _ask(self, work: _Layer, parts: list[Part]) -> None:
        """Send one call per member; the other parts are left to the local bank."""
        if not parts:
            return
        activations = self._activations(work)  # fetched before the device has more to do
        for part in parts:
            if part.holder == LOCAL:
                work.local.append(_Left(part=part))
            elif not self._send(work, part, *activations):
                self._plan_again(work, part)

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
        call = RunExperts(
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
        if not self._cluster.call(seat, part, call):
            return False
        work.awaited[seat] = part
        return True

    def _gave_up(self, work: _Layer, part: Part) -> bool:
        """Whether its holder has to give up some of it: it gets another set, for another turned out to be gone."""
        active = self._cluster.members.active
        return active is not work.placement and not active.holds(part.holder, work.layer, part.expert)

    def _plan_again(self, work: _Layer, part: Part, failed: Seat | None = None, reason: str = "") -> None:
        self._cluster.counters.replans += 1
        work.local.append(_Left(part=part.again_locally(), failed=failed, reason=reason))

    # --- computing here ---------------------------------------------------------------------------------------

    def _launch(self, work: _Layer, part: Part) -> None:
        """The device begins with its part, and adds it to sums of its own."""
        assert self._share is not None  # without slots nothing is placed there
        self._settle_others(work)
        _cover(work, part)
        self._share.launch(work.layer, work.rows, part, work.sums)
        work.on_device = len(part)

    def _settle_others(self, work: _Layer) -> None:
        """The device has done the part of the other step: what is launched now comes behind that."""
        for other in self._layers.values():
            if other is not work:
                self._settle(other)

    def _settle(self, work: _Layer) -> None:
        """Wait until the device has done its part, if it has one."""
        if self._share is None or not work.on_device:
            return
        began = self._clock()
        self._share.settle()
        work.device_s = self._clock() - began
        self._cluster.counters.device_entries += work.on_device
        work.on_device = 0

    def _compute(self, work: _Layer, left: _Left) -> None:
        """The local bank adds a part straight to the host's sums."""
        part = left.part
        _cover(work, part)
        began = self._clock()
        rows, slots, sums = self._host_rows(work), -1 - part.row, work.sums.to_host()
        self._bank.run(work.layer, rows, part.expert, part.row, part.weight, slots, self._no_singles, sums)
        work.local_s += self._clock() - began
        self._cluster.counters.local_entries += len(part)
        if left.failed is not None:
            self._cluster.strike(left.failed, left.reason)

    def _host_rows(self, work: _Layer) -> native.Rows:
        """All rows in the form that travels in this layer."""
        return host_rows(work.rows, self._quantised[work.layer])

    # --- gathering --------------------------------------------------------------------------------------------

    def _gather(self, work: _Layer) -> None:
        """Compute what is left to this process, at first or because it is late or lost; take answers as they come."""
        while work.local or work.awaited:
            while work.local:
                self._compute(work, work.local.popleft())
            if work.awaited:
                self._await(work)

    def _await(self, work: _Layer) -> None:
        """Wait for an answer, or for a deadline."""
        left_s = min(self._cluster.time_left(seat, work.step) for seat in work.awaited)
        began = self._clock()
        heard = self._cluster.wait(left_s)
        work.wait_s += self._clock() - began
        if heard:
            self._take_answers()
        elif left_s > 0:
            self._cluster.probe(work.awaited)
        if left_s <= 0:  # only now, for an answer that lies in the socket is not late
            self._replace_late(work)

    def _take_answers(self) -> None:
        """Of all steps under way: the answers to one may come while another is waited for."""
        for seat, message in self._cluster.answers():
            self._take(self._layers[message.step], seat, message)
            if not any(work.awaited for work in self._layers.values()):
                return  # what else has come can wait until the next layer has been asked for

    def _take(self, work: _Layer, seat: Seat, message: Sums | WorkFailed) -> None:
        part = work.awaited.pop(seat)
        self._cluster.close_call(seat, message)
        if isinstance(message, Sums) and self._add(work, seat, part, message):
            return
        if isinstance(message, WorkFailed):
            self._plan_again(work, part, seat, message.reason[:MAX_REASON])
        else:
            self._plan_again(work, part)

    def _add(self, work: _Layer, seat: Seat, part: Part, reply: Sums) -> bool:
        """Add a good answer to the sums; a bad one is counted and dropped."""
        if seat.member.quarantined:
            return False
        try:
            if self._auditor is not None and self._auditor.due():
                if not self._audit(self._auditor, work, seat, part, reply):
                    return True
            else:
                add_reply(reply, part.row, work.sums.to_host())
        except ProtocolError as error:
            self._cluster.counters.dropped += 1
            self._cluster.strike(seat, f"a wrong answer for layer {work.layer}: {error}")
            return False
        _cover(work, part)
        work.busy_s = max(work.busy_s, reply.busy_us * 1e-6)
        self._cluster.credit(seat, len(part), reply)
        return True

    def _audit(self, auditor: Auditor, work: _Layer, seat: Seat, part: Part, reply: Sums) -> bool:
        """Add an answer once it is compared with what is computed here; False if that was added in its place.

        ProtocolError as of `add_reply`, and nothing added.
        """
        sums = work.sums.to_host()
        theirs = np.zeros_like(sums)
        add_reply(reply, part.row, theirs)
        began = self._clock()
        try:
            ours = auditor.sums(work.layer, self._host_rows(work), part.expert, part.row, part.weight)
        except ExpertError as error:
            log.warning(
                "an answer of worker %s cannot be computed here, so it is believed: %s", seat.member.name, error
            )
            ours = theirs
        work.local_s += self._clock() - began
        self._cluster.counters.audits += ours is not theirs
        found = difference(work.layer, part.expert, part.row, ours, theirs)
        sums += ours
        if found is None:
            return True
        _cover(work, part)
        self._cluster.counters.local_entries += len(part)
        self._cluster.quarantine(seat.member, found)
        return False

    def _replace_late(self, work: _Layer) -> None:
        """Compute here what is past its deadline, and what was asked of a worker that is gone."""
        for seat in tuple(work.awaited):
            if self._cluster.time_left(seat, work.step) > 0:
                continue
            part = work.awaited.pop(seat)
            log.warning("no answer of worker %s for layer %d: computed here", seat.member.name, work.layer)
            seat.line.give_up(work.step)
            self._plan_again(work, part)


def _cover(work: _Layer, part: Part) -> None:
    """Note that its entries are in the sums, or will be next. ExpertError if one was before: these are no use then."""
    if not work.coverage.accept(part):
        raise ExpertError(work.layer, -1, "entries were planned for two holders")
