"""One layer of one step under way: what has been asked of whom, what is left to this process, what is done."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field

from coordinator.deadlines import Call
from coordinator.dense_half import Rows
from coordinator.layer_times import LayerTime
from coordinator.placement import Placement
from coordinator.plan import Coverage, Part
from coordinator.seats import Seat
from coordinator.sums import LayerSums
from protocol.errors import ExpertError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blame:
    """Who could not compute a part, and is struck if somebody else can."""

    seat: Seat
    reason: str


@dataclass(slots=True, kw_only=True, eq=False)
class LayerUnderWay:
    """Of several attempts at the same entries one is accepted: the first that is answered, or computed here."""

    step: int
    layer: int
    rows: Rows
    sums: LayerSums
    coverage: Coverage
    placement: Placement
    """That the plan was made from."""
    awaited: dict[Call, Seat] = field(default_factory=dict)
    """What has been asked of whom, is not answered, and is of use if it is."""
    local: deque[Part] = field(default_factory=deque)
    """What is left to the local bank, and not computed yet."""
    stranded: list[Part] = field(default_factory=list)
    """Without a local bank: what nobody can be asked for just now."""
    stranded_at: float = 0.0
    """Since when there is something."""
    attempts: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    """Numbers of attempts after the first plan, each given once, so that an answer tells which part it is."""
    blamed: dict[int, Blame] = field(default_factory=dict)
    """By attempt: who failed at its entries before."""
    hedged: bool = False
    """Some of its entries were asked of more than one."""
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

    def took(self, resumed: float, finished: float) -> LayerTime:
        """What became of the time, once all is done: finishing it was `resumed` and is `finished`, by the clock.

        Between its begin and that the process did something else, while others were in their kernels.
        """
        here_s, elsewhere_s = finished - resumed, resumed - self.begun_at
        return LayerTime(
            plan=self.plan_s,
            send=self.send_s,
            local=self.local_s,
            wait=self.wait_s,
            device=self.device_s,
            take=here_s - self.local_s - self.wait_s - self.device_s,
            total=self.plan_s + self.send_s + here_s,
            kernel=max(self.local_s, self.busy_s - elsewhere_s) + self.device_s,
        )

    def cover(self, part: Part) -> None:
        """Note that its entries are in the sums, or will be next; other attempts at them are of no use any more.

        ExpertError if one was before: the sums are no use then.
        """
        if not self.coverage.accept(part):
            raise ExpertError(self.layer, -1, "entries were planned for two holders")
        if self.hedged:
            for call in [call for call in self.awaited if not self.coverage.lacks(call.part)]:
                call.wanted = False
                del self.awaited[call]

    def again(self, part: Part, placement: Placement, blame: Blame | None = None) -> list[Part]:
        """New attempts at a part, by who has it in this placement, LOCAL where nobody does."""
        parts = part.again(placement.owner[self.layer], self.attempts, placement.second(self.layer), placement.runners)
        blame = blame or self.blamed.get(part.attempt)
        if blame is not None:
            self.blamed.update((one.attempt, blame) for one in parts)
        return parts

    def failed(self) -> set[int]:
        """Serial numbers of those who could not compute something of this layer."""
        return {blame.seat.member.serial for blame in self.blamed.values()}
