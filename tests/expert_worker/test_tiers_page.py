"""docs/tiers.md names every source and every counter there is, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from open_bank import open_bank

from protocol.expert_sources import SOURCES

PAGE = Path(__file__).parents[2] / "docs/tiers.md"


def named_in(heading: str) -> set[str]:
    """What the first column of the table below a heading names."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")][1:]
    return {name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)} - {"source"}


def test_every_source_has_its_line() -> None:
    assert named_in("Sources") == set(SOURCES) - {"auto"}


def test_every_counter_has_its_line(tiny_model: Path) -> None:
    with open_bank(tiny_model) as bank:
        assert named_in("Counters") == set(bank.counts())
