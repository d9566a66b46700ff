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


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; floats get three figures."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)]) + "\n"


def _cell(value: object) -> str:
    return three_figures(value) if isinstance(value, float) else str(value)
