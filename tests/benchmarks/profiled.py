"""A process of a cluster with timers around its kernels: `python -P -m profiled MODULE OPTIONS` is `-m MODULE OPTIONS`.

At SIGUSR1 it tells on stderr what was spent since the last time: a line that begins with MARK, the rest is JSON.
"""

from __future__ import annotations

import json
import os
import queue
import runpy
import signal
import sys
import time
from dataclasses import replace

from native_timers import Parts, Timers

from coordinator.launch_plan import LaunchPlan
from coordinator.launcher import Launcher
from coordinator.layer_times import LayerTime, LayerTimes
from protocol.errors import ExpertmeshError

MARK = "profile: "
TELL_S = 20.0
"""Time for a process to tell."""
BETWEEN = tuple(name for name in LayerTime._fields if name not in ("total", "kernel"))
"""Fields of LayerTime that together are a layer's experts."""


class Tellings:
    """What the processes of a cluster tell, as the launcher's readers hear it."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[tuple[str, Parts]] = queue.SimpleQueue()

    def on_line(self, name: str, line: str) -> None:
        """For the launcher."""
        if line.startswith(MARK):
            self._told.put((name, json.loads(line.removeprefix(MARK))))

    def ask(self, launcher: Launcher) -> dict[str, Parts]:
        """By process, what was spent since the last time. ExpertmeshError if one does not tell."""
        for child in launcher.children.values():
            child.send(signal.SIGUSR1)
        found: dict[str, Parts] = {}
        deadline = time.monotonic() + TELL_S
        while len(found) < len(launcher.children):
            try:
                name, parts = self._told.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                missing = ", ".join(sorted(launcher.children.keys() - found.keys()))
                raise ExpertmeshError(f"{missing}: no times within {TELL_S:g} s") from None
            found[name] = parts
        return found


def with_timers(plan: LaunchPlan) -> LaunchPlan:
    """The same processes, each run by this module."""
    processes = []
    for process in plan.processes:
        at = process.command.index("-m") + 1
        command = (*process.command[:at], "profiled", *process.command[at:])
        processes.append(replace(process, command=command))
    return replace(plan, processes=tuple(processes))


def main() -> None:
    """Install the timers, then become the module."""
    module = sys.argv.pop(1)
    timers = Timers()
    timers.install()
    keep = LayerTimes.add

    def add(times: LayerTimes, layer: LayerTime) -> None:
        for name in BETWEEN:
            timers.add(name, getattr(layer, name))
        keep(times, layer)

    LayerTimes.add = add  # type: ignore[assignment, method-assign]
    signal.signal(signal.SIGUSR1, lambda *_: _tell(timers))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _tell(timers: Timers) -> None:
    """In one piece, whatever else writes to stderr."""
    os.write(2, f"{MARK}{json.dumps(timers.take())}\n".encode())


if __name__ == "__main__":
    main()
