"""Where the time of a decode step and of a prompt's chunk goes, in one process and with workers.

    PYTHONPATH=tests/support:tests/benchmarks .venv/bin/python -P tests/benchmarks/step_profile.py MODEL [PACK]

Timers are put around the compiled kernels (native_timers.py). The files and thread counts take turns, and so do the
numbers of workers. Prints what belongs under the last heading of docs/roofline.md; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import ExitStack
from pathlib import Path

import interruptible
from benchmark_page import heading
from in_process import in_process
from machine_check import MachineCheck
from native_timers import Timers
from paired_figures import in_turn, spread
from profile_here import Profile, here_tables
from profile_there import cluster_profiles, there_tables

from coordinator.interrupts import Interrupts


def run(options: argparse.Namespace, interrupts: Interrupts) -> None:
    """Measure and print: what is found in one process first, so that it is there if the rest fails."""
    print(heading("Profile"), flush=True)
    check = MachineCheck(max(options.threads))
    checks = [check.settled(options.settle_s)]
    if "here" in options.only:
        print(here_tables(_here(options)), flush=True)
        checks.append(check.settled(options.settle_s))
    if "workers" in options.only:
        for path in options.models:
            found = cluster_profiles(path, options, interrupts)
            print(f"{there_tables(path.name, found)}", flush=True)
        checks.append(check.ratio())
    print(f"Machine check with {max(options.threads)} threads, before and after: {spread(checks)}.")


def _here(options: argparse.Namespace) -> list[Profile]:
    timers = Timers()
    timers.install()
    deadline = time.monotonic() + options.within_s
    with ExitStack() as stack:
        profiles = [
            Profile(path.name, stack.enter_context(in_process(path, threads)), timers)
            for path in options.models
            for threads in options.threads
        ]
        for number in range(options.rounds):
            for profile in in_turn(profiles, number):
                profile.measure(options.chunk, options.tokens)
            if time.monotonic() > deadline:
                break
    return profiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("models", type=Path, nargs="+", metavar="MODEL", help="the model, and other files of the same, as packs are")
    add("--only", nargs="+", choices=("here", "workers"), default=["here", "workers"], help="what is measured")
    add("--threads", nargs="+", type=int, default=list(range(1, min(2, os.cpu_count() or 1) + 1)))
    add(
        "--workers", nargs="+", type=int, default=[1, 2], help="of one thread each; the coordinator has as many threads"
    )
    add("--rounds", type=int, default=3)
    add("--tokens", type=int, default=24, help="decoded in each round")
    add("--chunk", type=int, default=256, help="rows of a prompt's chunk")
    add("--within-s", type=float, default=300.0, help="no round of either kind is begun later than this")
    add("--settle-s", type=float, default=3.0, help="how long a good machine check is waited for")
    options = parser.parse_args()
    interruptible.run(parser, lambda interrupts: run(options, interrupts))


if __name__ == "__main__":
    main()
