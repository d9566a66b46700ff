"""Who used the processors while something was timed: the processes that were idle, and everybody else."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Clocks at one moment, in seconds."""

    wall_s: float
    busy_s: float
    """That this machine's processors have spent on anything, or its host on others."""
    used_s: Mapping[int, float]
    """By process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorUse:
    """Between two readings, in seconds of one processor."""

    wall_s: float
    idle_s: Mapping[str, float]
    """By program: its processes that were not asked."""
    others_s: float
    """All processes that were not read."""


def read_clocks(pids: Collection[int]) -> Reading:
    """What these processes and this one have used, and the machine."""
    machine = psutil.cpu_times()
    used = {pid: psutil.Process(pid).cpu_times() for pid in {*pids, os.getpid()}}
    return Reading(
        wall_s=time.monotonic(),
        busy_s=machine.user + machine.nice + machine.system + machine.irq + machine.softirq + machine.steal,
        used_s={pid: each.user + each.system for pid, each in used.items()},
    )


def use_between(before: Reading, after: Reading, programs: Mapping[int, str], asked: Collection[int]) -> ProcessorUse:
    """`programs` names the program of each process, idle or `asked`."""
    spent = {pid: used_s - before.used_s[pid] for pid, used_s in after.used_s.items()}
    idle = dict.fromkeys(programs.values(), 0.0)
    for pid, program in programs.items():
        if pid not in asked:
            idle[program] += spent[pid]
    others_s = after.busy_s - before.busy_s - sum(spent.values())
    return ProcessorUse(wall_s=after.wall_s - before.wall_s, idle_s=idle, others_s=max(0.0, others_s))
