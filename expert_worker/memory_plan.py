"""How many bytes of copies a worker may make: planned under the account that all workers of this machine keep."""

from __future__ import annotations

from expert_worker.copy_plan import Budget, CopyPlan, plan_copies
from protocol.host_memory import host_memory
from protocol.messages import I32, U8


class MemoryPlanner:
    """Plans copies from what memory there is, less what others of this machine have planned and not yet taken."""

    def __init__(self, budget: Budget, headroom: int) -> None:
        """`budget` as in `plan_copies`."""
        self._budget = budget
        self._headroom = headroom

    def plan(self, sizes: tuple[int, ...], wanted: U8, rank: I32 | None, copied_bytes: int) -> CopyPlan:
        """See `Planner`."""
        available = host_memory().available + copied_bytes
        return plan_copies(sizes, wanted, rank, self._budget, available=available, headroom=self._headroom)

    def touched(self, copied_bytes: int) -> None:
        """See `Planner`."""

    def close(self) -> None:
        """See `Planner`."""
