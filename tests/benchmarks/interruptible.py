"""How a benchmark that starts processes ends: by its work, one line about what is wrong, or a signal."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from coordinator.interrupts import Interrupted, Interrupts
from protocol.errors import ExpertmeshError


def run(parser: argparse.ArgumentParser, work: Callable[[Interrupts], None]) -> None:
    """Do the work; exit with a line in place of a traceback."""
    try:
        with Interrupts().caught() as interrupts:
            work(interrupts)
    except ExpertmeshError as error:
        parser.exit(2, f"error: {error}\n")
    except Interrupted as interrupted:
        parser.exit(interrupted.exit_code, f"stopped by {interrupted}\n")
