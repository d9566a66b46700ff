"""How long a worker may take for a call, learnt from how long its calls take; and the calls that it has.

Pure: readings of a monotonic clock are passed in. Deadlines drive failover, because a lost peer is not reported by the
transport: a call that is not answered in time is computed elsewhere, which cannot change the answer, only its time.
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
        limits = self._limits
        if self._per_entry is None or self._fixed is None:
            return min(max(limits.first_s, limits.floor_s), limits.ceiling_s)
        expected = self._fixed.high() + entries * self._per_entry.high()
        return min(max(limits.slack * expected, limits.floor_s), limits.ceiling_s)


MAX_CALLS = 2
"""Calls that a worker may have at once: one for each half of a window."""


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One RunExperts under way."""

    step: int
    layer: int
    part: Part
    limit_s: float
    """How long it may take once the one before it is done."""
    since: float
    """When it was sent, or when the one before it was answered."""

    @property
    def deadline_at(self) -> float:
        """When its worker is late, if no other call lies before it."""
        return self.since + self.limit_s


class Line:
    """One worker's line: the calls that it has not answered, in the order in which it answers them.

    It is suspect when these were given up, while their answers are still to come. A suspect worker gets no more work,
    so calls never pile up before a worker that is frozen or slow.
    """

    __slots__ = ("_calls", "_finished", "latency", "suspect")

    def __init__(self, limits: CallLimits) -> None:
        self.latency = Latency(limits)
        self.suspect = False
        """Its calls were given up."""
        self._calls: list[Call] = []
        self._finished: Call | None = None  # of a suspect: what a beat says is done

    @property
    def free(self) -> bool:
        """It may be given a call."""
        return not self.suspect and len(self._calls) < MAX_CALLS

    def begin(self, step: int, layer: int, part: Part, now: float, limit_s: float | None = None) -> Call:
        """Put a call on a free line; its limit is what is known of its worker's latency, unless it is given."""
        if not self.free:
            waiting = ", ".join(f"step {call.step}, layer {call.layer}" for call in self._calls)
            raise ValueError(
                f"{MAX_CALLS} calls at a time, and none while others are given up: not answered: {waiting}"
            )
        if limit_s is None:
            limit_s = self.latency.limit_s(len(part))
        call = Call(step=step, layer=layer, part=part, limit_s=limit_s, since=now)
        self._calls.append(call)
        return call

    def give_up(self, step: int | None = None) -> None:
        """A step's call is not waited for any more, if it is there, nor are the others: what comes will be late."""
        if step is None or self._index(step) is not None:
            self.suspect = bool(self._calls)

    def time_left(self, step: int, now: float) -> float:
        """Seconds until the deadline of a step's call; 0 if it is past, given up, or there is none.

        A call waits for those before it, whose deadlines are to be waited for first.
        """
        at = self._index(step)
        if at is None or self.suspect:
            return 0.0
        left_s = max(0.0, self._calls[0].deadline_at - now)
        return left_s if at == 0 else left_s + sum(call.limit_s for call in self._calls[1 : at + 1])

    def answers(self, step: int, layer: int, attempt: int) -> bool:
        """Whether a reply with these numbers is one that is still to come."""
        at = self._index(step)
        return at is not None and self._calls[at].layer == layer and self._calls[at].part.attempt == attempt

    def answered(self, step: int, now: float, busy_s: float | None) -> None:
        """The answer of a step's call came, in time or late. busy_s is None if it says nothing about its duration.

        A late answer counts as having taken its whole limit: a worker that is slower than believed gets longer limits
        call by call, while one that was frozen for a minute does not get minutes from then on. Answers come in order,
        so those to earlier calls, if there are any, were lost.
        """
        at = self._index(step)
        if at is None:
            return
        call = self._calls[at]
        if busy_s is not None:
            elapsed_s = min(now, call.deadline_at) - call.since
            self.latency.observe(len(call.part), elapsed_s, busy_s)
        self._done_until(at, now)

    def beat(self, step: int, layer: int, now: float) -> bool:
        """A beat says which call the worker finished last; True if a suspect's answer must have been lost.

        The first such beat may have overtaken the answer, which travels on another connection; the second has not.
        """
        if not self.suspect:
            return False
        if self._finished is not None:
            self._done_until(self._calls.index(self._finished), now)
            return True
        at = self._index(step)
        if at is not None and self._calls[at].layer == layer:
            self._finished = self._calls[at]
        return False

    def _index(self, step: int) -> int | None:
        """Which of the calls is that of a step: it has one at most."""
        for at, call in enumerate(self._calls):
            if call.step == step:
                return at
        return None

    def _done_until(self, at: int, now: float) -> None:
        """That call and those before it are done: the next one's time begins, or the line is free."""
        del self._calls[: at + 1]
        self._finished = None
        if self._calls:
            self._calls[0].since = now
        else:
            self.suspect = False
