"""A real expert worker that stops, as by SIGSTOP, once it has loaded half of its copies or of a shared arena.

So a test can kill it there. Otherwise this is `expert_worker.main`.
"""

from __future__ import annotations

import os
import signal
import sys

import expert_worker.main
from expert_worker.file_reader import Outcome
from expert_worker.loading import Loading
from expert_worker.sources import copied, shared


class HalfLoading(Loading):
    """One that goes no further than half."""

    def add(self, outcome: Outcome) -> None:
        super().add(outcome)
        if 2 * self._bytes >= self._total:
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    for source in (copied, shared):
        vars(source)["Loading"] = HalfLoading
    sys.exit(expert_worker.main.main())
