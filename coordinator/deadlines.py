"""How long a worker may take for a call, learnt from how long its calls take; and the one call it may have.

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One RunExperts under way."""

    step: int
    layer: int
    part: Part
    sent_at: float
    deadline_at: float


class Line:
    """One worker's line: free, one call awaited, or suspect: one call given up whose answer is still to come.

    A suspect worker gets no more work, so calls never pile up before a worker that is frozen or slow.
    """

    __slots__ = ("_finished_beats", "call", "latency", "suspect")

    def __init__(self, limits: CallLimits) -> None:
        self.latency = Latency(limits)
        self.call: Call | None = None
        """The call whose answer has not come."""
        self.suspect = False
        """That call was given up."""
        self._finished_beats = 0

    @property
    def free(self) -> bool:
        """It may be given a call."""
        return self.call is None

    def begin(self, step: int, layer: int, part: Part, now: float, limit_s: float | None = None) -> Call:
        """Put a call on a free line; its limit is what is known of its worker's latency, unless it is given."""
        if self.call is not None:
            raise ValueError(f"one call at a time: step {self.call.step}, layer {self.call.layer} is not answered")
        if limit_s is None:
            limit_s = self.latency.limit_s(len(part))
        self.call = Call(step=step, layer=layer, part=part, sent_at=now, deadline_at=now + limit_s)
        self._finished_beats = 0
        return self.call

    def give_up(self) -> None:
        """The call's part is computed elsewhere; its answer, when it comes, is late."""
        self.suspect = self.call is not None

    def answers(self, step: int, layer: int, attempt: int) -> bool:
        """Whether a reply with these numbers is the one that is still to come."""
        call = self.call
        return call is not None and (call.step, call.layer, call.part.attempt) == (step, layer, attempt)

    def answered(self, now: float, busy_s: float | None) -> None:
        """The answer came, in time or late; the line is free. busy_s is None if it says nothing about its duration.

        A late answer counts as having taken its whole limit: a worker that is slower than believed gets longer limits
        call by call, while one that was frozen for a minute does not get minutes from then on.
        """
        call = self.call
        if call is not None and busy_s is not None:
            elapsed_s = min(now, call.deadline_at) - call.sent_at
            self.latency.observe(len(call.part), elapsed_s, busy_s)
        self.call, self.suspect = None, False

    def beat(self, step: int, layer: int) -> bool:
        """A beat says which call the worker finished last; True if the suspect's answer must have been lost.

        The first such beat may have overtaken the answer, which travels on another connection; the second has not.
        """
        call = self.call
        if not self.suspect or call is None or (step, layer) < (call.step, call.layer):
            return False
        self._finished_beats += 1
        if self._finished_beats < 2:
            return False
        self.call, self.suspect = None, False
        return True
