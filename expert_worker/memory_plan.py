"""How many bytes of copies or slots a worker may have: planned under the account that workers of this machine keep."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from expert_worker.copy_plan import Budget, CopyPlan, limited, plan_copies
from expert_worker.siblings import ALONE, Siblings
from protocol.errors import RoomError
from protocol.gib import GIB
from protocol.host_ledger import Pledge, planning
from protocol.host_memory import host_memory
from protocol.messages import I32, U8
from protocol.promises import LedgerError
from protocol.wording import size

log = logging.getLogger(__name__)

LEDGER_S = 2.0
"""How long others may plan before this one does without them: beats are due meanwhile."""
SLOT_SHARE = 0.75
"""Direct reads have slots in this part of a worker's share of the memory, if nothing is said: the rest is for the dense
half, and for pages of whatever finds no slot."""

T = TypeVar("T")


class MemoryPlanner:
    """Plans copies from what memory there is, less what others of this machine have planned and not yet taken.

    Where less than all may be copied, no more than its fair share: who plans first has no more than its siblings.
    """

    def __init__(self, budget: Budget, headroom: int, siblings: Siblings = ALONE) -> None:
        """`budget` as in `plan_copies`."""
        self._budget = budget
        self._headroom = headroom
        self._siblings = siblings
        self._pledge: Pledge | None = None
        self._planned = 0

    def plan(self, sizes: tuple[int, ...], wanted: U8, rank: I32 | None, copied_bytes: int) -> CopyPlan:
        """See `Planner`."""

        def copies(budget: Budget, available: int) -> CopyPlan:
            return plan_copies(sizes, wanted, rank, budget, available=available, headroom=self._headroom)

        def plan_within(available: int, taken: int) -> CopyPlan:
            available += copied_bytes
            if self._budget is not None:
                available = self._share(available, taken)
            try:
                return copies(self._budget, available)
            except RoomError as error:
                if self._budget != "auto":
                    raise
                log.warning("experts come from the files: %s", error)
                return copies(0, available)

        plan = self._planned_as(plan_within, lambda plan: plan.bytes)  # what is kept of the copies is told by `touched`
        self._planned = plan.bytes
        return plan

    def slots(self, most: int) -> int:
        """Bytes for slots, `most` at most, of which none is filled yet: they too are promised until they are."""
        budget = "auto" if self._budget is None else self._budget

        def plan_within(available: int, taken: int) -> int:
            limit, why = limited(budget, self._share(available, taken), self._headroom)
            if why:
                log.info("%s", why)
            return min(most, int(limit * SLOT_SHARE) if budget == "auto" else limit)

        self._planned = self._planned_as(plan_within, lambda count: count)
        say = log.info if self._planned else log.warning
        say("slots for experts take %s at most", size(self._planned))
        return self._planned

    def touched(self, copied_bytes: int) -> None:
        """See `Planner`."""
        if self._pledge is None:
            return
        if copied_bytes >= self._planned and self._siblings == ALONE:
            self.close()
        else:
            self._pledge.touched(copied_bytes)

    def close(self) -> None:
        """See `Planner`."""
        if self._pledge is not None:
            self._pledge.withdraw()
            self._pledge = None

    def _share(self, available: int, taken: int) -> int:
        share = self._siblings.fair(available, self._headroom, taken)
        if share < available:
            log.info(
                "of %.2f GiB %.2f are for this worker, one of %d here, and for what stays free",
                available / GIB,
                share / GIB,
                self._siblings.here,
            )
        return share

    def _planned_as(self, plan_within: Callable[[int, int], T], taken: Callable[[T], int]) -> T:
        """The plan for what is available and what siblings have, and a promise of the bytes that it takes."""
        self.close()
        try:
            with planning(deadline_s=LEDGER_S) as ledger:
                if ledger.note:
                    log.warning("%s", ledger.note)
                family = self._siblings.family
                plan = plan_within(ledger.available, ledger.taken_by(family))
                self._pledge = ledger.promise(taken(plan), family)
                return plan
        except LedgerError as error:
            log.warning("planning without what others of this machine have planned: %s", error)
            return plan_within(host_memory().available, 0)
