"""What a process of a cluster does before it loads anything: it takes a third of a second until the rest is loaded."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def first_of_all(die_with_parent: Callable[[int], bool]) -> None:
    """End at once, without a traceback, on a signal; and with the parent that `--parent PID` names.

    What is loaded next is loaded without what makes that slow, until `loaded`.

    `die_with_parent` is native's, which loads nothing else. A signal that is ignored, as nohup does with SIGHUP, stays
    so.
    """
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the command line blocks them while it becomes a worker
    option, parent = ["", "", *sys.argv][-2:]  # the launcher names it last
    if option == "--parent" and parent.isdecimal() and not die_with_parent(int(parent)):
        os._exit(0)  # nobody is left who wanted it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here uses BLAS, for which NumPy would start threads
    gc.disable()  # what a library makes when it is loaded stays


def loaded() -> None:
    """All is there: from now on garbage is collected, but what is there stays, and need not be looked at."""
    gc.freeze()
    gc.enable()


def refuse(error: ImportError) -> NoReturn:
    """End because the kernels cannot be loaded: EXPERTMESH_ISA names what is not there, most likely."""
    sys.stderr.write(f"error: {error}\n")
    sys.exit(2)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)  # nothing has been opened yet, and an exception may get lost in a library's start
