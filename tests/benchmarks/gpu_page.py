"""docs/gpu-results.md, written section by section: what was measured in another call stays.

Imports nothing but the standard library, since it is used before anything is installed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

START = """\
# Results on a GPU

Written by `tests/gpu/on_gpu_machine.py` ([measuring.md](measuring.md)), which replaces the sections that it runs; each
says when, from which commit, where and with which command it was taken.
"""
ORDER = ("Tests", "Kernels", "The model of 48 layers", "Where the time goes", "Clusters")
"""Of the sections; others come last."""

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_COUNTS = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in ([\d.]+)s", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where figures come from."""

    at: datetime
    commit: str
    machine: str
    command: str

    def line(self) -> str:
        """What a section begins with."""
        return (
            f"{self.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, commit {self.commit}, {self.machine}:\n\n`{self.command}`\n"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has been run."""

    output: str
    code: int | None
    """None if it was ended because its time was over."""
    seconds: float


def sections(page: str) -> dict[str, str]:
    """The text under each heading of the second level, in the page's order."""
    parts = _HEADING.split(page)
    return {title: text.strip() + "\n" for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def put(page: str, title: str, text: str) -> str:
    """The page with this section new, or replaced."""
    found = sections(page) | {title: text.strip() + "\n"}
    known = [title for title in ORDER if title in found]
    titles = known + [title for title in found if title not in ORDER]
    return "\n".join([START, *(f"## {title}\n\n{found[title]}" for title in titles)])


def section(origin: Origin, ran: Ran, body: str) -> str:
    """What is said of a command: its origin, what came of it, and how it ended if that was not well."""
    return f"{origin.line()}\n{body.strip()}\n{_ending(ran)}"


def of_tests(ran: Ran) -> str:
    """What a run of pytest comes to: its counts, and the tests that failed."""
    counts = _COUNTS.findall(ran.output)
    lines = [
        f"{counts[-1][0]}, in {float(counts[-1][1]):.0f} s." if counts else "No counts: it did not come to its end."
    ]
    failed = [line for line in ran.output.splitlines() if re.match(r"(FAILED|ERROR) ", line)]
    skipped = [line for line in ran.output.splitlines() if line.startswith("SKIPPED ")]
    return "\n".join([*lines, *_listed("Failed", failed), *_listed("Skipped", skipped)]) + "\n"


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", "", *(f"- `{line[:200]}`" for line in lines)] if lines else []


def _ending(ran: Ran) -> str:
    if ran.code == 0:
        return ""
    how = (
        f"was ended after {ran.seconds:.0f} s, when its time was over" if ran.code is None else f"ended with {ran.code}"
    )
    return f"\nThe command {how}.\n"
