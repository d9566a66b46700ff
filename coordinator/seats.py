"""Each member's seat: the line of calls to it, how fast these are, and how often it was no help."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from coordinator.deadlines import CallLimits, Line
from coordinator.member import Member
from coordinator.pace import Pace
from coordinator.pace_meter import PaceMeter
from coordinator.placement import Placement


@dataclass(slots=True, kw_only=True, eq=False)
class Seat:
    """A member and its line."""

    member: Member
    line: Line
    strikes: int = 0
    """Failed or wrong answers since the last good one."""
    meter: PaceMeter = field(default_factory=PaceMeter)
    """How fast its calls for one row are."""
    called_at: float = 0.0
    """When it was given its last call."""


class Seats:
    """Of all members that were asked for something, by serial number."""

    def __init__(self, limits: CallLimits) -> None:
        """`limits` of every call."""
        self._limits = limits
        self._seats: dict[int, Seat] = {}

    def of(self, member: Member) -> Seat:
        """Its seat, which is made if there is none yet."""
        seat = self._seats.get(member.serial)
        if seat is None:
            seat = self._seats[member.serial] = Seat(member=member, line=Line(self._limits))
        return seat

    def get(self, member: Member | None) -> Seat | None:
        """Its seat, or None if it was never asked for anything, or there is no such member."""
        return None if member is None else self._seats.get(member.serial)

    def leave(self, member: Member) -> None:
        """It is gone: whatever it was asked for is given up."""
        seat = self._seats.pop(member.serial, None)
        if seat is not None:
            seat.line.give_up()

    def suspects(self) -> set[int]:
        """Serial numbers of members whose late answer is still to come."""
        return {serial for serial, seat in self._seats.items() if seat.line.suspect}

    def overdue(self) -> list[Seat]:
        """Those with a call that was hedged or given up, whose answer is still to come."""
        return [seat for seat in self._seats.values() if seat.line.keeps_waiting]

    def free(self, placement: Placement) -> Placement:
        """The same without those that can be given no call."""
        for serial, seat in self._seats.items():
            if not seat.line.free:
                placement = placement.without(serial)
        return placement

    def pass_time(self, now: float) -> None:
        """It is `now` on every line."""
        for seat in self._seats.values():
            seat.line.pass_time(now)

    def paces(self, left_out: Container[int]) -> dict[int, Pace | None]:
        """What calls tell of each member's pace; `left_out` are those that get no work because they are slow."""
        latest = max((seat.called_at for seat in self._seats.values()), default=0.0)
        for serial, seat in self._seats.items():
            seat.meter.unused(latest - seat.called_at, left_out=serial in left_out)
        return {serial: seat.meter.pace() for serial, seat in self._seats.items()}
