"""How long a worker may take for a call, learnt from how long its calls take; and the calls that it has.

Pure: readings of a monotonic clock are passed in. Deadlines drive failover, because a lost peer is not reported by the
transport: a call that is not answered in time is computed elsewhere, which cannot change the answer, only its time.
Well before that, when it has taken longer than such calls do, it is hedged: others compute it too, if anybody can, and
the first answer counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.plan import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Bounds of every call's deadline."""

    floor_s: float = 1.0
    """No deadline is shorter: a machine whose cores are oversubscribed stalls a healthy worker for tenths of a second,
    while a worker that died is noticed sooner by its closed connection."""
    ceiling_s: float = 120.0
    """No deadline is longer. A worker that is frozen or dead falls silent long before."""
    first_s: float = 10.0
    """For a worker that has not answered yet: its file may have to come from the disk."""
    slack: float = 2.0
    """How many times its expected duration a call may take."""
    hedge_floor_s: float = 0.05
    """No call is hedged sooner: most stalls of a healthy worker are shorter, and cost less than computing twice."""
    hedge_first_s: float = 0.5
    """The same for a worker that has not answered yet."""


class _Average:
    """Exponentially weighted mean and mean deviation, as TCP keeps them for its round trips."""

    __slots__ = ("deviation", "mean")

    def __init__(self, first: float) -> None:
        self.mean = first
        self.deviation = first / 2

    def add(self, value: float) -> None:
        error = value - self.mean
        self.mean += error / 8
        self.deviation += (abs(error) - self.deviation) / 4

    def high(self) -> float:
        return self.mean + 4 * self.deviation


class Latency:
    """What is known about one worker's calls: time per entry in its kernels, and everything else."""

    __slots__ = ("_fixed", "_limits", "_per_entry")

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._per_entry: _Average | None = None
        self._fixed: _Average | None = None

    def observe(self, entries: int, elapsed_s: float, busy_s: float) -> None:
        """A call of `entries` entries took `elapsed_s`, of which the worker says it computed for `busy_s`."""
        busy_s = min(max(busy_s, 0.0), elapsed_s)
        per_entry, fixed = busy_s / max(entries, 1), elapsed_s - busy_s
        if self._per_entry is None or self._fixed is None:
            self._per_entry, self._fixed = _Average(per_entry), _Average(fixed)
            return
        self._per_entry.add(per_entry)
        self._fixed.add(fixed)

    def limit_s(self, entries: int) -> float:
        """How long a call of `entries` entries may take."""
        limits, allowed_s = self._limits, self._allowed_s(entries)
        return min(max(limits.first_s if allowed_s is None else allowed_s, limits.floor_s), limits.ceiling_s)

    def hedge_s(self, entries: int) -> float:
        """When a call of `entries` entries is to be hedged: never after its limit."""
        limits, allowed_s = self._limits, self._allowed_s(entries)
        soonest_s = max(limits.hedge_first_s if allowed_s is None else allowed_s, limits.hedge_floor_s)
        return min(soonest_s, self.limit_s(entries))

    def _allowed_s(self, entries: int) -> float | None:
        """What such a call is known to take, and the slack; None if nothing is known."""
        if self._per_entry is None or self._fixed is None:
            return None
        return self._limits.slack * (self._fixed.high() + entries * self._per_entry.high())


MAX_CALLS = 2
"""Calls that a worker may have at once: one for each half of a window, or one and a part of another's."""


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One RunExperts under way."""

    step: int
    layer: int
    part: Part
    limit_s: float
    """How long it may take once the one before it is done."""
    hedge_s: float
    """The same, until it is hedged."""
    since: float
    """When it was sent, or when the one before it was answered."""
    sent_at: float
    one_row: bool = False
    """It is of one row, as most are while answers stream: its worker's pace is measured by these."""
    hedged: bool = False
    """Others were asked for its part, too."""
    wanted: bool = True
    """Its answer is of use; else its part has been computed by others."""

    @property
    def deadline_at(self) -> float:
        """When its worker is late, if no other call lies before it."""
        return self.since + self.limit_s


class Line:
    """One worker's line: the calls that it has not answered, in the order in which it answers them.

    While one of them is hedged, its worker gets no more work: what is slow, frozen or cut off costs one hedge, not one
    a layer. It is suspect when they were given up, while their answers are still to come; nor does it get work then.
    """

    __slots__ = ("_calls", "_finished", "latency", "suspect")

    def __init__(self, limits: CallLimits) -> None:
        self.latency = Latency(limits)
        self.suspect = False
        """Its calls were given up."""
        self._calls: list[Call] = []
        self._finished: Call | None = None  # of a worker that keeps us waiting: what a beat says is done

    @property
    def free(self) -> bool:
        """It may be given a call."""
        return len(self._calls) < MAX_CALLS and not self.keeps_waiting

    @property
    def keeps_waiting(self) -> bool:
        """A call of it was hedged or given up, and the answer is still to come."""
        return self.suspect or any(call.hedged for call in self._calls)

    def begin(
        self,
        step: int,
        layer: int,
        part: Part,
        now: float,
        limit_s: float | None = None,
        hedge_s: float | None = None,
    ) -> Call:
        """Put a call on a free line; its times are what is known of its worker's latency, unless they are given."""
        if not self.free:
            waiting = ", ".join(f"step {call.step}, layer {call.layer}" for call in self._calls)
            raise ValueError(f"{MAX_CALLS} calls at a time, and none while others are overdue: not answered: {waiting}")
        if limit_s is None:
            limit_s = self.latency.limit_s(len(part))
        if hedge_s is None:
            hedge_s = min(limit_s, self.latency.hedge_s(len(part)))
        call = Call(step=step, layer=layer, part=part, limit_s=limit_s, hedge_s=hedge_s, since=now, sent_at=now)
        self._calls.append(call)
        return call

    def give_up(self, call: Call | None = None) -> None:
        """A call is not waited for any more, if it is there, nor are the others: what comes will be late."""
        if call is None or call in self._calls:
            self.suspect = bool(self._calls)

    def pass_time(self, now: float) -> None:
        """Give up a call past its deadline that nobody waits for any more: its part was computed by others."""
        if self._calls and not self._calls[0].wanted and now >= self._calls[0].deadline_at:
            self.give_up()

    def time_left(self, call: Call, now: float) -> float:
        """Seconds until a call's deadline; 0 if it is past, given up, or answered.

        A call waits for those before it, whose deadlines are to be waited for first.
        """
        if self.suspect or call not in self._calls:
            return 0.0
        left_s = max(0.0, self._calls[0].deadline_at - now)
        return left_s + sum(one.limit_s for one in self._calls[1 : self._calls.index(call) + 1])

    def hedge_left(self, call: Call, now: float) -> float:
        """Seconds until a call is to be hedged, or to its deadline; behind one that was hedged it is at once."""
        left_s = self.time_left(call, now)
        if call.hedged or not left_s:
            return left_s
        before = self._calls[: self._calls.index(call)]
        if any(one.hedged for one in before):
            return 0.0
        due_at = self._calls[0].since + sum(one.hedge_s for one in (*before, call))
        return min(left_s, max(0.0, due_at - now))

    def find(self, step: int, layer: int, attempt: int) -> Call | None:
        """The call that a reply with these numbers answers, if it is still to come."""
        for call in self._calls:
            if (call.step, call.layer, call.part.attempt) == (step, layer, attempt):
                return call
        return None

    def answered(self, call: Call, now: float, busy_s: float | None) -> None:
        """The answer of a call came, in time or late. busy_s is None if it says nothing about its duration.

        A late answer counts as having taken its whole limit: a worker that is slower than believed gets longer limits
        call by call, while one that was frozen for a minute does not get minutes from then on. Answers come in order,
        so those to earlier calls, if there are any, were lost.
        """
        if call not in self._calls:
            return
        if busy_s is not None:
            elapsed_s = min(now, call.deadline_at) - call.since
            self.latency.observe(len(call.part), elapsed_s, busy_s)
        self._done_until(call, now)

    def beat(self, step: int, layer: int, now: float) -> bool:
        """A beat says which call the worker finished last; True if an overdue answer must have been lost.

        The first such beat may have overtaken the answer, which travels on another connection; the second has not.
        """
        if not self.keeps_waiting:
            return False
        if self._finished is not None:
            self._done_until(self._finished, now)
            return True
        for call in self._calls:  # the first of several for one layer: of the others nothing is known
            if (call.step, call.layer) == (step, layer):
                self._finished = call
                break
        return False

    def _done_until(self, call: Call, now: float) -> None:
        """That call and those before it are done: the next one's time begins, or the line is free."""
        del self._calls[: self._calls.index(call) + 1]
        self._finished = None
        if self._calls:
            self._calls[0].since = now
        else:
            self.suspect = False
