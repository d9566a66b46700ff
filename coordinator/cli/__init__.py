"""The `expertmesh` command line. This file loads nothing large: a signal is an exit code from the first moment on.

`commands.py` knows the commands, each of which has a file of its own.
"""

from __future__ import annotations

import sys

from coordinator.interrupts import Interrupted, Interrupts


def main() -> None:
    """Run the command that the arguments name."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command line."""
    interrupts = Interrupts()
    try:
        with interrupts.caught():
            with interrupts.held():
                from coordinator.cli.commands import carry_out
            return carry_out(arguments, interrupts)
    except Interrupted as interrupted:
        return interrupted.exit_code
