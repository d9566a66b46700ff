"""Which source a worker has: what it was told, or else what suits the model and the memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import ConfigError
from protocol.expert_sources import BUDGETED_SOURCES

GIB = 1 << 30
HEADROOM = 4 * GIB
"""Left to everything else on a machine, at most."""
HEADROOM_SHARE = 10
"""Of a smaller machine or container a tenth."""
DIRECT_BELOW = 0.4
"""Of the bytes that a machine's workers are to hold: with room for less, most experts have to be read again and again,
and then direct reads, which cost no more than the bytes, are faster than pages."""
HEADROOM_AT_LEAST = 128 << 20
"""But twice of what `pressure.py` gives copies up for, if that is not more than a quarter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person said."""

    source: str = "auto"
    ram: int | None = None
    """Bytes for copies or slots; None is as much as fits."""
    headroom: int | None = None
    """Bytes left to everything else; None leaves it to us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known when a worker starts."""

    expert_bytes: int
    """Of the whole model: what of it will be assigned is not known yet."""
    total: int | None
    """Bytes of memory that the machine or its container has; None where that cannot be read."""
    available: int | None
    """Of these, what can still be taken."""
    part: float | None = None
    """Of `expert_bytes`, what the workers of this machine are to hold together; None where that is not known."""
    why_not_direct: str = ""
    """Why files cannot be read past the page cache; empty if they can."""

    @property
    def held_bytes(self) -> int | None:
        """What the workers of this machine are to hold, where that is known."""
        return None if self.part is None else int(self.expert_bytes * self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A source, and how much memory it may take."""

    source: str
    ram: int | None
    """As in `Asked`."""
    headroom: int
    room: int | None
    """Bytes of pages that may be asked for ahead; None where that is not known."""
    why: str
    """For people."""


def choose(asked: Asked, facts: Facts) -> Choice:
    """The source to open. ConfigError for memory that it would not use."""
    if asked.ram is not None and asked.source not in BUDGETED_SOURCES:
        raise ConfigError(
            f"memory of {asked.ram / GIB:.4g} GiB is of no use to the source {asked.source}, expected none; it is for "
            f"{', '.join(BUDGETED_SOURCES)}"
        )
    headroom = _headroom(asked, facts)
    room = None if facts.available is None else max(0, facts.available - headroom)
    if asked.source != "auto":
        return Choice(source=asked.source, ram=asked.ram, headroom=headroom, room=room, why="as it was told")
    if asked.ram is not None:
        return Choice(
            source="copies", ram=asked.ram, headroom=headroom, room=room, why="it was given memory for copies"
        )
    mostly_read = room is not None and facts.held_bytes is not None and room < DIRECT_BELOW * facts.held_bytes
    if room is not None and mostly_read and not facts.why_not_direct:
        return Choice(source="direct", ram=None, headroom=headroom, room=room, why=_why_direct(facts, room))
    why = _why_mapped(facts, headroom)
    if mostly_read:
        why += f"; they cannot be read past the page cache: {facts.why_not_direct}"
    return Choice(source="mapped", ram=None, headroom=headroom, room=room, why=why)


def _headroom(asked: Asked, facts: Facts) -> int:
    if asked.headroom is not None:
        return asked.headroom
    if facts.total is None:
        return HEADROOM
    return min(HEADROOM, max(facts.total // HEADROOM_SHARE, min(HEADROOM_AT_LEAST, facts.total // 4)))


def _why_direct(facts: Facts, room: int) -> str:
    held = f"{(facts.held_bytes or 0) / GIB:.4g} GiB of experts that are to be held on this machine"
    return (
        f"less than {DIRECT_BELOW:.0%} of the {held} fit into the {room / GIB:.4g} GiB that are free, so most are read"
    )


def _why_mapped(facts: Facts, headroom: int) -> str:
    experts = f"the model's {facts.expert_bytes / GIB:.4g} GiB of experts"
    if facts.available is None:
        return f"how much memory there is for {experts} cannot be read, and the kernel shares pages out by itself"
    room = max(0, facts.available - headroom)
    if facts.expert_bytes <= room:
        return f"{experts} fit into the {room / GIB:.4g} GiB that are free, so pages stay in memory without a copy"
    return f"{experts} do not fit into the {room / GIB:.4g} GiB that are free, and the kernel keeps the pages used last"
