"""When memory becomes short, how many bytes of RAM copies a worker gives up so that it is not killed. Pure.

A copy that is given up is computed from the file again: the same bits, later. So giving up too much costs time, too
little costs the worker; and what has been given up is not copied again before there has been room for long.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wording import size

RESERVE_AT_LEAST = 64 << 20
"""But an eighth of a limit at most."""
RESERVE_AT_MOST = 1 << 30
STALLED_SOME = 0.3
"""Part of the time in which some process waits for memory, from which on it counts as stalled."""
STALLED_FULL = 0.1
"""The same for all processes at once."""
BETWEEN_STALL_SHEDS_S = 5.0
"""What one shedding has changed shows in the time spent waiting a few seconds later."""
TAKES_EFFECT_WITHIN_S = 10.0
CALM_S = 60.0
"""Before copies may grow again; doubled each time that they had to shrink again."""
CALM_AT_MOST_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the machine and the groups around this process say at one moment; `pressure_watch.py` reads it."""

    at_s: float
    """Of a clock that never goes back."""
    limit: int | None
    """Bytes of the smallest group's limit, of the machine where there is none; None if it is not known."""
    room: int | None
    """Bytes that may still be taken, files' clean pages counted as free; below zero, bytes in use too many."""
    some_us: int | None = None
    """Time so far in which some process waited for memory; None where the kernel does not count it."""
    full_us: int | None = None
    """Time so far in which all of them did."""

    @property
    def reserve(self) -> int:
        """Bytes that are to stay free: a thirty-second of the limit, within bounds."""
        if self.limit is None:
            return RESERVE_AT_LEAST
        return min(max(self.limit >> 5, min(RESERVE_AT_LEAST, self.limit >> 3)), RESERVE_AT_MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What `decide` remembers. Before the first reading: `State()`."""

    last: Reading | None = None
    low: int = 0
    """Readings in a row with less room than is to stay free."""
    stalls: int = 0
    """Readings in a row since each of which processes waited much."""
    target: int | None = None
    """Bytes of copies that there are to be after the last shedding."""
    shed_at_s: float | None = None
    sheds: int = 0
    """How often copies had to shrink; what follows within `CALM_S` is the same time."""
    calm_since_s: float | None = None
    """Since when there has been much room and no waiting; None if there is not."""


@dataclass(frozen=True, slots=True)
class _Stall:
    """Parts of the time between two readings in which some processes waited for memory, and all of them."""

    some: float = 0.0
    full: float = 0.0

    @property
    def is_heavy(self) -> bool:
        return self.some >= STALLED_SOME or self.full >= STALLED_FULL


def decide(previous: State, reading: Reading, copied_bytes: int) -> tuple[State, int, str]:
    """The next state, how many of the `copied_bytes` to give up now, and why, for a person; 0 and "" if nothing is to
    be done. To be called about once a second with a new reading.
    """
    room = _room_soon(previous, reading, copied_bytes)
    short = 0 if room is None else max(0, reading.reserve - room)
    stall = _stall(previous.last, reading)
    low, stalls = previous.low + 1 if short else 0, previous.stalls + 1 if stall.is_heavy else 0
    shed, reason = _by_room(previous, reading, room, short, low)
    if not shed and stalls >= 2 and _may_be_to_blame(previous, reading, room):
        shed = reading.reserve
        reason = f"processes wait for memory {stall.some:.0%} of the time, all of them {stall.full:.0%}"
    shed = min(shed, copied_bytes)
    calm = not stall.is_heavy and room is not None and room >= 4 * reading.reserve
    state = State(
        last=reading,
        low=low,
        stalls=0 if shed else stalls,
        target=copied_bytes - shed if shed else _target(previous, reading, copied_bytes),
        shed_at_s=reading.at_s if shed else previous.shed_at_s,
        sheds=previous.sheds + (1 if shed and _since_shed(previous, reading) >= CALM_S else 0),
        calm_since_s=(reading.at_s if previous.calm_since_s is None else previous.calm_since_s) if calm else None,
    )
    return state, shed, reason if shed else ""


def room_to_grow(state: State) -> int:
    """Bytes that may be copied again after a shedding: much less than there is, and none before it has been calm for
    long. What is copied so leaves four times the reserve, and is not shed because of itself.
    """
    last, since = state.last, state.calm_since_s
    if last is None or last.room is None or since is None:
        return 0
    wait = min(CALM_S * 2 ** min(max(0, state.sheds - 1), 10), CALM_AT_MOST_S)
    return max(0, last.room - 4 * last.reserve) if last.at_s - since >= wait else 0


def _by_room(previous: State, reading: Reading, room: int | None, short: int, low: int) -> tuple[int, str]:
    """What is missing and a quarter of the reserve: at once if little is left or a limit fell, else if it stays so."""
    if room is None or not short:
        return 0, ""
    before = None if previous.last is None else previous.last.limit
    fell = before is not None and reading.limit is not None and reading.limit < before
    if not fell and 2 * room >= reading.reserve and low < 2:
        return 0, ""
    left = f"{size(room)} of it are left" if room >= 0 else f"{size(-room)} too many are in use"
    what = f"the memory limit fell from {size(before or 0)} to" if fell else "memory is short: the limit is"
    return short + reading.reserve // 4, f"{what} {size(reading.limit or 0)}, {left}"


def _may_be_to_blame(previous: State, reading: Reading, room: int | None) -> bool:
    """Whether copies can be why processes wait: with much room, it is files larger than memory that are being read.

    Who plans copies leaves two reserves free (`sources/choice.py`), so that reading the rest from files takes no copy.
    """
    return (room is None or 2 * room < 3 * reading.reserve) and _since_shed(previous, reading) >= BETWEEN_STALL_SHEDS_S


def _room_soon(previous: State, reading: Reading, copied_bytes: int) -> int | None:
    """With what is being given up already."""
    target = _target(previous, reading, copied_bytes)
    return None if reading.room is None else reading.room + (copied_bytes - target if target is not None else 0)


def _target(previous: State, reading: Reading, copied_bytes: int) -> int | None:
    if previous.target is None or copied_bytes <= previous.target:
        return None
    return previous.target if _since_shed(previous, reading) < TAKES_EFFECT_WITHIN_S else None


def _since_shed(previous: State, reading: Reading) -> float:
    return float("inf") if previous.shed_at_s is None else reading.at_s - previous.shed_at_s


def _stall(last: Reading | None, reading: Reading) -> _Stall:
    """Nothing if a counter is missing or has gone back, as after a move to another group."""
    if last is None or reading.at_s <= last.at_s:
        return _Stall()
    us = (reading.at_s - last.at_s) * 1e6
    return _Stall(_part(last.some_us, reading.some_us, us), _part(last.full_us, reading.full_us, us))


def _part(before: int | None, now: int | None, us: float) -> float:
    return 0.0 if before is None or now is None or now < before else min(1.0, (now - before) / us)
