"""What every benchmark prints around its figures: the machine, the command, and tables."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from paired_figures import three_figures

import native


def heading(title: str) -> str:
    """Title, command and machine, for a results page."""
    command = " ".join(["python -P", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    load = os.getloadavg()[0]
    return (
        f"## {title}\n\n`{command}`\n\n{processor}, {os.cpu_count()} CPUs, {native.isa()} "
        f"(of {', '.join(native.available_isas())}), Linux {platform.release()}, load {load:.1f} at the start\n"
    )


class GrowingTable:
    """A Markdown table that is printed row by row, so that what was measured is there if the rest never comes."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._print(columns)
        print("|" + "---|" * len(columns), flush=True)

    def add(self, row: Sequence[object]) -> None:
        """Floats get three figures."""
        self._print(row)

    def _print(self, row: Sequence[object]) -> None:
        print(_line(row), flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; floats get three figures."""
    return "\n".join([_line(columns), "|" + "---|" * len(columns), *map(_line, rows)]) + "\n"


def _line(row: Sequence[object]) -> str:
    return "| " + " | ".join(map(_cell, row)) + " |"


def _cell(value: object) -> str:
    return three_figures(value) if isinstance(value, float) else str(value)
