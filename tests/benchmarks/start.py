"""From the command to the end of an answer of one token, and the CPU seconds of each process until then, in turns.

    PYTHONPATH=tests/benchmarks .venv/bin/python -P tests/benchmarks/start.py --model bench-mid.gguf

`--python` names other environments with the program in them (another version, say), to be compared in the same rounds.
Wall time means something on an idle machine only, CPU seconds nearly always.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmark_page import heading, table
from paired_figures import in_turn, spread

PROMPT = "In the beginning God created"
STOPPED_S = 30.0
"""Time for its processes to end after it."""
ROLES = ("command line", "coordinator", "worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is started."""

    python: Path
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start."""

    shown_s: float
    """From the command until its answer has been shown: stopping comes after that."""
    cpu_s: dict[str, float]
    """Until then, user and system, by role; of workers the mean."""


def measured(setup: Setup, model: Path) -> Start:
    """Ask for one token, and look at the processes when it is there, which may show as no more than a line's end."""
    command = [str(setup.python), "-P", "-m", "coordinator.cli", "generate", "--model", str(model)]
    command += ["--workers", str(setup.workers), "--max-tokens", "1", "--ignore-eos", PROMPT]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        shown_s = time.monotonic() - began
        used = _used(process.pid) if first else {}
        process.communicate(timeout=STOPPED_S)
    if process.returncode or not first:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
    return Start(shown_s=shown_s, cpu_s=used)


def _used(launcher: int) -> dict[str, float]:
    """The launcher starts the coordinator first."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    figures = [_cpu_s(pid) for pid in (str(launcher), *children)]
    used = dict(zip(ROLES, figures[:2], strict=False))
    if workers := figures[2:]:
        used["worker"] = sum(workers) / len(workers)
    return used


def _cpu_s(pid: str) -> float:
    """User and system, of the process itself; also of one that has ended and was not waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _row(setup: Setup, starts: list[Start], several: bool) -> list[object]:
    used = [_spread_of(role, starts) for role in ROLES]
    all_s = spread([_all_s(setup, start) for start in starts])
    where = [setup.python] if several else []
    return [*where, setup.workers, spread([start.shown_s for start in starts]), *used, all_s]


def _spread_of(role: str, starts: list[Start]) -> object:
    return spread([start.cpu_s[role] for start in starts]) if role in starts[0].cpu_s else ""


def _all_s(setup: Setup, start: Start) -> float:
    return sum(seconds * (setup.workers if role == "worker" else 1) for role, seconds in start.cpu_s.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", type=Path, nargs="+", default=[Path(sys.executable)], metavar="PATH")
    options = parser.parse_args()
    title = heading("Start")  # the load is that before
    setups = [Setup(python=python, workers=workers) for workers in options.workers for python in options.python]
    starts: dict[Setup, list[Start]] = {setup: [] for setup in setups}
    for setup in setups:  # pages and compiled modules are there from now on
        measured(setup, options.model)
    for number in range(options.rounds):
        for setup in in_turn(setups, number):
            starts[setup].append(measured(setup, options.model))
    several = len(options.python) > 1
    columns = ["workers", "one token after, s", *(f"{role}, CPU s" for role in ROLES), "all, CPU s"]
    print(title)
    print(table(["environment", *columns] if several else columns, [_row(s, starts[s], several) for s in setups]))


if __name__ == "__main__":
    main()
