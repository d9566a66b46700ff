"""One layer's experts, by whoever holds them: plan, ask, launch the device's share, compute the local one, gather.

Members, the coordinator's device and its processor work at the same time. Layers of two steps may be under way, those
of a window's halves: then members compute one while the dense half of the other is computed here. Every (row, expert)
entry is added to the sums exactly once. A part whose worker is late, lost or answers badly is taken from it: others
that hold its experts are asked, as a new attempt, or else the local bank computes it. If a worker is not late but takes
longer than it usually does, the same is done while its answer is awaited still, and the first one counts (a hedge).
Because sums are exact integers and experts are pure functions, none of this can change a bit. Without a local bank
what nobody can be asked for waits for a holder, and fails if there is none (`unheld.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

import native
from coordinator.audit import Auditor, difference
from coordinator.calls import Activations, call_for
from coordinator.cluster import TICK_S, Cluster
from coordinator.deadlines import Call
from coordinator.dense_half import Rows, host_rows
from coordinator.device_share import DeviceShare
from coordinator.halves import Halves
from coordinator.layer_inputs import LayerInputs
from coordinator.layer_times import LayerTimes
from coordinator.plan import DEVICE, LOCAL, Coverage, Part, plan_layer
from coordinator.replies import add_reply
from coordinator.seats import Seat
from coordinator.sums import LayerSums
from coordinator.under_way import Blame, LayerUnderWay
from coordinator.unheld import check_held, never_answered
from expert_worker.bank import ExpertBank
from peer_gpu.slots import ExpertSlots
from protocol.errors import ExpertError, ProtocolError, RequestError
from protocol.layout import ExpertLayout
from protocol.messages import F32, I32, MAX_REASON, Sums, WorkFailed

log = logging.getLogger(__name__)

ATTEND_S = 0.005
"""How often the sockets are looked at, at least; whoever waits for answers looks at them anyway."""


class MeshExperts:
    """An `ExpertRunner` over the members of a cluster and the coordinator's own slots and bank."""

    def __init__(
        self,
        cluster: Cluster,
        bank: ExpertBank | None,
        layout: ExpertLayout,
        slots: ExpertSlots | None = None,
        halves: Halves | None = None,
        inputs: LayerInputs | None = None,
        auditor: Auditor | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`slots` hold what the members' placements leave to DEVICE; None if that is nothing. `halves`: Halves().

        `bank` computes what nobody else does; None: then that fails, and says whose experts are missing.
        `inputs` tells those who look ahead; None tells nobody. The `auditor` says which answers it computes again.
        """
        self.times = LayerTimes()
        self.spent_s = 0.0
        """Seconds that steps have spent here so far."""
        self._share = None if slots is None else DeviceShare(slots)
        self._cluster = cluster
        self._halves = halves or Halves()
        self._inputs = inputs
        self._auditor = auditor
        self._layers: dict[int, LayerUnderWay] = {}  # by step
        self._bank = bank
        self._quantised = {number: layer.quantised_input for number, layer in layout.with_experts()}
        self._no_singles = np.empty((0, layout.width), np.float32)
        self._clock = clock

    @property
    def halves_from(self) -> int | None:
        """Rows from which on a window is computed in halves, if it is at all: see `Halves`."""
        members = self._cluster.members
        holders = map(members.get, members.assignment.active.members)
        return self._halves.least_rows(holder.hello.host for holder in holders if holder is not None)

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Have others begin with the entries of ids and weights (rows, k); `sums` arrives zeroed.

        Before anybody is asked: RequestError for bad ids or weights, and without a local bank ExpertError for experts
        that nobody holds.
        """
        began = self._clock()
        if self._cluster.heard(ATTEND_S):
            self._take_answers()
        if self._cluster.closing:
            raise RequestError("the coordinator is stopping")
        placement, now = self._cluster.members.assignment.active, self._cluster.placement()
        parts = plan_layer(layer, ids, weights, now.owner[layer], now.second(layer), now.runners)
        if self._bank is None:
            check_held(layer, parts, self._cluster.members)
        planned = self._clock()
        work = LayerUnderWay(
            step=step, layer=layer, rows=rows, sums=sums, coverage=Coverage(ids.size), placement=placement
        )
        self._layers[step] = work
        on_host = [part for part in parts if part.holder != DEVICE]
        self._ask(work, on_host)
        if parts[0].holder == DEVICE:  # they ascend, and it is the lowest
            self._launch(work, parts[0])
        if on_host and self._inputs is not None and self._inputs.wanted(layer):
            self._inputs.publish(step, layer, *self._activations(work))  # they are on the host by now
        work.begun_at = self._clock()
        work.plan_s, work.send_s = planned - began, work.begun_at - planned
        if work.awaited and rows.count == 1:
            self._cluster.meter.send.add(work.send_s / len(work.awaited))

    def finish_layer(self, step: int) -> None:
        """Compute what is left to this process, and wait for the others: every entry is in the sums then.

        ExpertError if the local bank cannot compute what nobody else did, or there is none: the sums are no use then.
        """
        work = self._layers[step]
        resumed = self._clock()
        self._gather(work)
        self._settle(work)
        if missing := work.coverage.missing:
            raise ExpertError(work.layer, -1, f"{missing} entries were computed by nobody")
        del self._layers[step]
        self._cluster.counters.layers += 1
        took = work.took(resumed, self._clock())
        self.spent_s += took.total
        self.times.add(took)

    def inputs_report(self) -> dict[str, int]:
        """Layer inputs that were published, how often somebody fell behind, what it took; empty if nobody is told."""
        return {} if self._inputs is None else self._inputs.report()

    def abandon(self) -> None:
        """Give up what was begun and not finished: what still comes is late."""
        for work in self._layers.values():
            for call, seat in work.awaited.items():
                seat.line.give_up(call)
        self._layers.clear()
        if self._share is not None:
            self._share.abandon()

    # --- asking -----------------------------------------------------------------------------------------------

    def _ask(self, work: LayerUnderWay, parts: list[Part]) -> None:
        """Send one call per member; the other parts are left to the local bank."""
        if not parts:
            return
        activations = self._activations(work)  # fetched before the device has more to do
        refused = []
        for part in parts:
            if part.holder == LOCAL:
                self._leave(work, part)
            elif not self._send(work, part, activations):
                refused.append(part)
        for part in refused:  # only now, for nobody can be asked twice
            self._plan_again(work, part)

    def _leave(self, work: LayerUnderWay, part: Part) -> None:
        """Nobody can be asked for it: it is the local bank's, or waits for somebody."""
        if self._bank is not None:
            work.local.append(part)
            return
        if not work.stranded:
            work.stranded_at = self._clock()
        work.stranded.append(part)

    def _activations(self, work: LayerUnderWay) -> Activations:
        return Activations.of(self._host_rows(work), self._quantised[work.layer])

    def _send(self, work: LayerUnderWay, part: Part, activations: Activations) -> bool:
        seat = self._cluster.seat(part.holder)
        if seat is None or not seat.line.free or self._gave_up(work, part):
            return False
        members = self._cluster.members
        call = call_for(
            part,
            activations,
            work.rows.count,
            session=members.terms.session,
            placement=members.assignment.active.version,
            step=work.step,
            layer=work.layer,
        )
        sent = self._cluster.call(seat, part, call)
        if sent is None:
            return False
        work.awaited[sent] = seat
        return True

    def _gave_up(self, work: LayerUnderWay, part: Part) -> bool:
        """Whether its holder has to give up some of it: it gets another set, for another turned out to be gone."""
        active = self._cluster.members.assignment.active
        return active is not work.placement and not active.holds(part.holder, work.layer, part.expert)

    def _plan_again(self, work: LayerUnderWay, part: Part, blame: Blame | None = None) -> None:
        """Take a part from its holder: it is the holder's no more, whatever becomes of it."""
        self._cluster.counters.replans += 1
        self._ask(work, self._elsewhere(work, part, blame))

    def _elsewhere(self, work: LayerUnderWay, part: Part, blame: Blame | None = None) -> list[Part]:
        """The part for who else can compute it now, but nobody who failed in this layer."""
        now = self._cluster.placement().without(part.holder)
        for failed in work.failed() | (set() if blame is None else {blame.seat.member.serial}):
            now = now.without(failed)
        return work.again(part, now, blame)

    def _hedge(self, work: LayerUnderWay, call: Call, seat: Seat) -> None:
        """Others compute it, too, if anybody can: first those who hold its experts, or else this process."""
        call.hedged = True  # so this worker is not among those that can be given a call
        parts = self._elsewhere(work, call.part)
        if self._bank is None and any(part.holder == LOCAL for part in parts):
            call.hedged, call.hedge_s = False, call.limit_s  # nobody can: it is waited for to the end
            return
        log.info("worker %s takes long for layer %d: others are asked, too", seat.member.name, work.layer)
        self._cluster.counters.hedges += 1
        work.hedged = True
        self._ask(work, parts)

    def _ask_again(self, work: LayerUnderWay) -> None:
        """Without a local bank: ask for what is stranded, as far as there is somebody to be asked by now.

        ExpertError if there will be nobody, or nobody has been for too long.
        """
        stranded, work.stranded = work.stranded, []
        check_held(work.layer, stranded, self._cluster.members, work.blamed.values())
        if self._clock() - work.stranded_at > self._cluster.limits.ceiling_s:
            raise never_answered(work.layer, stranded, self._cluster.members)
        since = work.stranded_at
        for part in stranded:
            if work.coverage.lacks(part):
                self._ask(work, self._elsewhere(work, part))
        work.stranded_at = since

    # --- computing here ---------------------------------------------------------------------------------------

    def _launch(self, work: LayerUnderWay, part: Part) -> None:
        """The device begins with its part, and adds it to sums of its own."""
        assert self._share is not None  # without slots nothing is placed there
        self._settle_others(work)
        work.cover(part)
        self._share.launch(work.layer, work.rows, part, work.sums)
        work.on_device = len(part)

    def _settle_others(self, work: LayerUnderWay) -> None:
        """The device has done the part of the other step: what is launched now comes behind that."""
        for other in self._layers.values():
            if other is not work:
                self._settle(other)

    def _settle(self, work: LayerUnderWay) -> None:
        """Wait until the device has done its part, if it has one."""
        if self._share is None or not work.on_device:
            return
        began = self._clock()
        self._share.settle()
        work.device_s = self._clock() - began
        self._cluster.counters.device_entries += work.on_device
        work.on_device = 0

    def _compute(self, work: LayerUnderWay, part: Part) -> None:
        """The local bank adds a part straight to the host's sums, unless somebody else was sooner."""
        if work.hedged and not work.coverage.lacks(part):
            return
        assert self._bank is not None
        work.cover(part)
        began = self._clock()
        rows, slots, sums = self._host_rows(work), -1 - part.row, work.sums.to_host()
        self._bank.run(work.layer, rows, part.expert, part.row, part.weight, slots, self._no_singles, sums)
        took = self._clock() - began
        work.local_s += took
        if work.rows.count == 1:
            self._cluster.meter.local.add(took / len(part))
        self._cluster.counters.local_entries += len(part)
        self._strike_blamed(work, part)

    def _strike_blamed(self, work: LayerUnderWay, part: Part) -> None:
        """It could be computed: who failed at it before is to blame."""
        blame = work.blamed.get(part.attempt)
        if blame is not None:
            self._cluster.strike(blame.seat, blame.reason)

    def _host_rows(self, work: LayerUnderWay) -> native.Rows:
        """All rows in the form that travels in this layer."""
        return host_rows(work.rows, self._quantised[work.layer])

    # --- gathering --------------------------------------------------------------------------------------------

    def _gather(self, work: LayerUnderWay) -> None:
        """Compute what is left to this process, at first or because it is late or lost; take answers as they come."""
        while work.local or work.awaited or work.stranded:
            while work.local:
                self._compute(work, work.local.popleft())
            if work.stranded:
                self._ask_again(work)
            if work.awaited or work.stranded:
                self._await(work)

    def _await(self, work: LayerUnderWay) -> None:
        """Wait for an answer, for a deadline, or until a call is to be hedged."""
        left_s = min((self._cluster.hedge_left(seat, call) for call, seat in work.awaited.items()), default=TICK_S)
        began = self._clock()
        heard = self._cluster.wait(left_s)
        work.wait_s += self._clock() - began
        if heard:
            self._take_answers()
        elif left_s > 0:
            self._cluster.probe(work.awaited.values() if work.awaited else self._cluster.overdue())
        if left_s <= 0:  # only now, for an answer that lies in the socket is not late
            self._replace_overdue(work)

    def _take_answers(self) -> None:
        """Of all steps under way: the answers to one may come while another is waited for."""
        for seat, call, message in self._cluster.answers():
            self._take(self._layers[message.step], seat, call, message)
            if not any(work.awaited for work in self._layers.values()):
                return  # what else has come can wait until the next layer has been asked for

    def _take(self, work: LayerUnderWay, seat: Seat, call: Call, message: Sums | WorkFailed) -> None:
        del work.awaited[call]
        self._cluster.close_call(seat, call, message)
        problem = (
            message.reason[:MAX_REASON] if isinstance(message, WorkFailed) else self._add(work, seat, call, message)
        )
        if problem and not call.hedged:  # then others have been asked already
            self._plan_again(work, call.part, Blame(seat=seat, reason=problem))

    def _add(self, work: LayerUnderWay, seat: Seat, call: Call, reply: Sums) -> str:
        """Add a good answer to the sums; a bad one is counted and dropped. What is wrong with it, or nothing."""
        if seat.member.quarantined:
            return "it is quarantined"
        try:
            if self._auditor is not None and self._auditor.due():
                if not self._audit(self._auditor, work, seat, call.part, reply):
                    return ""
            else:
                add_reply(reply, call.part.row, work.sums.to_host())
        except ProtocolError as error:
            self._cluster.counters.dropped += 1
            return f"a wrong answer for layer {work.layer}: {error}"
        work.cover(call.part)
        work.busy_s = max(work.busy_s, reply.busy_us * 1e-6)
        self._cluster.credit(seat, len(call.part), reply)
        self._strike_blamed(work, call.part)
        return ""

    def _audit(self, auditor: Auditor, work: LayerUnderWay, seat: Seat, part: Part, reply: Sums) -> bool:
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
        work.cover(part)
        self._cluster.counters.local_entries += len(part)
        self._cluster.quarantine(seat.member, found)
        return False

    def _replace_overdue(self, work: LayerUnderWay) -> None:
        """Hedge what takes long, and give up what is past its deadline, or was asked of a worker that is gone."""
        for call, seat in tuple(work.awaited.items()):
            if self._cluster.time_left(seat, call) > 0:
                if not call.hedged and self._cluster.hedge_left(seat, call) <= 0:
                    self._hedge(work, call, seat)
                continue
            del work.awaited[call]
            log.warning("no answer of worker %s for layer %d: computed by others", seat.member.name, work.layer)
            seat.line.give_up(call)
            if not call.hedged:
                self._plan_again(work, call.part)
