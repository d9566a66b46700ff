"""What a worker's beats say about how it is: idle, busy, held up, or not to be heard; values in, values out.

A dead process shows by its connection, which ends its membership at once. One that lives but is stopped, or whose link
lets nothing through, is silent. One that beats tells for how long its compute loop has had the work in hand, and how
much processor time the process used: hardly any between two beats means that something holds it up, most likely a disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.member import Member

FROZEN_BEATS = 2.5
"""Beats that may be missing, as of a machine under load, before it is said that nothing is heard."""
HELD_UP_S = 1.0
"""Work in hand for less than this is nothing to wonder about."""
WORKING_PART = 0.05
"""Processor time per time from which on it computes; beats and their answers take less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """How a worker is, in a word, and why that is said; empty where there is nothing to say."""

    word: str
    """idle, busy, stuck or frozen."""
    why: str = ""


def sign_of(member: Member, beat_s: float) -> Sign:
    """By its latest beats; `beat_s` is their interval."""
    if member.silent_s > FROZEN_BEATS * beat_s:
        why = f"nothing was heard of it for {member.silent_s:.1f} s: it is stopped, or its link is"
        return Sign(word="frozen", why=why)
    beat = member.beat
    if beat is None or beat.working_us <= 0:
        return Sign(word="idle")
    working_s = beat.working_us * 1e-6
    if working_s < HELD_UP_S or member.cpu_share is None:
        return Sign(word="busy")
    if member.cpu_share < WORKING_PART:
        why = f"it has had the work in hand for {working_s:.1f} s and computes nothing: something holds it up"
        return Sign(word="stuck", why=why)
    return Sign(word="busy", why=f"it has computed the work in hand for {working_s:.1f} s")
