"""How long it takes from starting processes, or a command, to the first token, once the file lies in the page cache."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmark_page import table
from llama_process import LlamaSide, llama_process
from our_side import our_side
from paired_figures import Spread, in_turn, spread
from samples import OURS, THEIRS
from start import Setup, measured

from coordinator.interrupts import Interrupts
from protocol.wording import counted

PROMPT = (1, 2, 3, 4)
PROCESSES, COMMAND = "processes", "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One way to start."""

    program: str
    how: str
    """PROCESSES, from the first one's start to the token here; or COMMAND, from its start to its first output."""
    workers: int
    label: str
    """Which form the weights have, as sides.Side has it."""
    seconds: Callable[[], float]

    @property
    def name(self) -> str:
        """For a table."""
        parts = [counted(self.workers, "worker") if self.workers else "no workers", self.label]
        return ", ".join([self.how, *filter(None, parts)])


Taken = list[tuple[Start, list[float]]]
"""Each way, and its seconds in all rounds."""


def measure(starts: Sequence[Start], rounds: int, deadline: float) -> Taken:
    """Each once in every round that is begun before the deadline, and none of the machine's programs beside it."""
    taken: Taken = [(start, []) for start in starts]
    for number in range(rounds):
        if number and time.monotonic() > deadline:
            break
        for start, seconds in in_turn(taken, number):
            seconds.append(start.seconds())
            sys.stderr.write(f"round {number + 1}: first token of {start.program}, {start.name}: {seconds[-1]:.2f} s\n")
    return taken


def our_starts(model: Path, label: str, workers: Sequence[int], interrupts: Interrupts) -> Iterator[Start]:
    """Processes by the launcher in this one, and the command that a user gives."""
    for count in workers:
        for how, seconds in (
            (PROCESSES, partial(_cluster_s, model, count, interrupts)),
            (COMMAND, partial(_command_s, model, count)),
        ):
            yield Start(program=OURS, how=how, workers=count, label=label, seconds=seconds)


def their_starts(python: Path, model: Path, layouts: Sequence[str]) -> Iterator[Start]:
    """llama.cpp's process, its interpreter included."""
    for layout in layouts:
        seconds = partial(_llama_s, python, model, layout)
        yield Start(program=THEIRS, how=PROCESSES, workers=0, label=layout, seconds=seconds)


def starts_table(taken: Taken) -> str:
    """Medians of all ways."""
    rows = [[start.program, start.name, spread(seconds)] for start, seconds in taken]
    return table(["program", "start of", "first token after, s"], rows)


def found(taken: Taken, label: str, workers: int) -> Spread | None:
    """Our processes' time with so many workers, if it was measured."""
    wanted = (OURS, PROCESSES, workers, label)
    every = [each for each in taken if (each[0].program, each[0].how, each[0].workers, each[0].label) == wanted]
    return spread(every[0][1]) if every else None


def _cluster_s(model: Path, workers: int, interrupts: Interrupts) -> float:
    began = time.monotonic()
    with our_side(model, interrupts, workers=workers, threads=max(1, workers)) as side:
        side.ask([PROMPT], 1)
        return time.monotonic() - began


def _command_s(model: Path, workers: int) -> float:
    return measured(Setup(python=Path(sys.executable), workers=workers), model).shown_s


def _llama_s(python: Path, model: Path, layout: str) -> float:
    began = time.monotonic()
    with llama_process(python, model, len(PROMPT) + 1, repack=layout == "repacked") as process:
        LlamaSide(process, 1).ask([PROMPT], 1)
        return time.monotonic() - began
