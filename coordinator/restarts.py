"""Whether and when a process that ended is started again: pure, so that its tests need no process and no clock."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.hosts import NOT_REACHED

MOST_COUNTED = 100
"""Short lives in a row, after which the delay does not change any more."""
IN_ORDER = 0
"""Exit code of a role that left because it was asked to, by `expertmesh drain` or a signal: nobody wants it back."""
BAD_SETTING = 2
"""Exit code of a role that cannot run as it was asked to: starting it again cannot help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How often to try, and how long to wait in between."""

    first_delay_s: float = 0.25
    """After the first short life; it doubles with each further one."""
    longest_delay_s: float = 15.0
    sound_s: float = 20.0
    """A life at least this long makes the short ones before it forgotten."""
    limit: int = 6
    """Short lives in a row after which a role is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartHistory:
    """What is remembered of a role's earlier lives."""

    short_lives: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Start it again after `delay_s`."""

    delay_s: float
    history: RestartHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Do not start it again."""

    why: str


def after_exit(code: int, lived_s: float, history: RestartHistory, policy: RestartPolicy) -> Again | GiveUp:
    """What to do about a role that lived for `lived_s` and ended with `code` (negative for a signal)."""
    if code == IN_ORDER:
        return GiveUp(why="it left as it was asked to")
    if code == BAD_SETTING:
        return GiveUp(why="it cannot run as it was asked to")
    if lived_s >= policy.sound_s:
        return Again(delay_s=policy.first_delay_s, history=RestartHistory())
    short_lives = min(history.short_lives + 1, MOST_COUNTED)
    if short_lives > policy.limit and code != NOT_REACHED:  # a machine that is not there may come back
        return GiveUp(why=f"it ended {short_lives} times in a row within {policy.sound_s:g} s of its start")
    delay_s = min(policy.first_delay_s * 2.0 ** (short_lives - 1), policy.longest_delay_s)
    return Again(delay_s=delay_s, history=RestartHistory(short_lives=short_lives))
