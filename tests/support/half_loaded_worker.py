"""A real expert worker that stops, as by SIGSTOP, once it has loaded half of its copies or of a shared arena.

So a test can kill it there. Otherwise this is `expert_worker.main`.
"""

from __future__ import annotations

import signal
import sys
import threading

import expert_worker.main
from expert_worker.file_reader import Outcome
from expert_worker.loading import Loading
from expert_worker.sources import copied, shared


class HalfLoading(Loading):
    """One that goes no further than half."""

    def add(self, outcome: Outcome) -> None:
        super().add(outcome)
        if 2 * self._bytes >= self._total:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread, so that it goes no step further


if __name__ == "__main__":
    for source in (copied, shared):
        vars(source)["Loading"] = HalfLoading
    sys.exit(expert_worker.main.main())
