"""How many bytes of copies a worker may make: planned under the account that all workers of this machine keep."""

from __future__ import annotations

import logging

from expert_worker.copy_plan import Budget, CopyPlan, plan_copies
from protocol.host_ledger import Pledge, planning
from protocol.host_memory import host_memory
from protocol.messages import I32, U8
from protocol.promises import LedgerError

log = logging.getLogger(__name__)

LEDGER_S = 2.0
"""How long others may plan before this one does without them: beats are due meanwhile."""


class MemoryPlanner:
    """Plans copies from what memory there is, less what others of this machine have planned and not yet taken."""

    def __init__(self, budget: Budget, headroom: int) -> None:
        """`budget` as in `plan_copies`."""
        self._budget = budget
        self._headroom = headroom
        self._pledge: Pledge | None = None
        self._before = 0
        self._planned = 0

    def plan(self, sizes: tuple[int, ...], wanted: U8, rank: I32 | None, copied_bytes: int) -> CopyPlan:
        """See `Planner`."""

        def plan_within(available: int) -> CopyPlan:
            return plan_copies(
                sizes, wanted, rank, self._budget, available=available + copied_bytes, headroom=self._headroom
            )

        self.close()
        try:
            with planning(deadline_s=LEDGER_S) as ledger:
                plan = plan_within(ledger.available)
                self._pledge = ledger.promise(max(0, plan.bytes - copied_bytes))
        except LedgerError as error:
            log.warning("planning without what others of this machine have planned: %s", error)
            plan = plan_within(host_memory().available)
        self._before, self._planned = copied_bytes, plan.bytes
        return plan

    def touched(self, copied_bytes: int) -> None:
        """See `Planner`."""
        if self._pledge is None:
            return
        if copied_bytes >= self._planned:
            self.close()
        else:
            self._pledge.touched(max(0, copied_bytes - self._before))

    def close(self) -> None:
        """See `Planner`."""
        if self._pledge is not None:
            self._pledge.withdraw()
            self._pledge = None
