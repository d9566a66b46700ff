"""What `expertmesh profile show` prints: for people, or as one JSON object."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordinator.cli.wording import harmless
from coordinator.profile import F64, Profile, covering
from coordinator.profile_recorder import HALF_LIFE_ROWS
from protocol.wording import counted

WIDTH = 110
SHARES = (50, 80, 90, 95)
"""Of all uses, in percent: how many experts have them?"""
HOTTEST = 5
"""How many experts are named."""


def as_text(path: Path, profile: Profile) -> str:
    """A page of plain text."""
    page = io.StringIO()
    console = Console(file=page, width=WIDTH, highlight=False, color_system=None)
    for label, text in _facts(path, profile):
        console.print(Text(f"{label:<11}{harmless(text)}"), soft_wrap=True)
    if profile.counts.any():
        console.print()
        console.print(_coverage(profile.known))
        console.print()
        console.print(_layers(profile.counts))
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def as_object(path: Path, profile: Profile) -> str:
    """One line of JSON; layers that nothing is known of are left out of `by_layer`."""
    layers, experts = profile.counts.shape
    whole: dict[str, Any] = {
        "path": str(path),
        "fingerprint": profile.fingerprint,
        "rows": profile.rows,
        "layers": layers,
        "experts": experts,
        "uses": profile.uses,
        **_numbers(profile.counts),
        "hottest": [[layer, expert, share] for layer, expert, share in _hottest(profile)],
        "by_layer": [{"layer": layer, **_numbers(row)} for layer, row in _used_layers(profile.counts)],
    }
    return json.dumps(whole) + "\n"


def _facts(path: Path, profile: Profile) -> Iterator[tuple[str, str]]:
    layers, experts = profile.counts.shape
    used = int(np.count_nonzero(profile.counts))
    yield "profile", f"{path}, of the model {profile.fingerprint}"
    yield "rows", f"{profile.rows} seen; a use weighs half {HALF_LIFE_ROWS} rows later"
    yield (
        "experts",
        f"{counted(layers, 'layer')} of {experts}; {used} of them were used, in {len(profile.known)} layers",
    )
    if used:
        named = (f"{expert} of layer {layer} ({share:.1%} of its uses)" for layer, expert, share in _hottest(profile))
        yield "hottest", ", ".join(named)


def _hottest(profile: Profile) -> Iterator[tuple[int, int, float]]:
    """Layer, expert, and its share of the uses of its layer, of those that were used most."""
    totals = profile.counts.sum(axis=1)
    for place in profile.ranked()[:HOTTEST].tolist():
        layer, expert = divmod(place, profile.counts.shape[1])
        if count := float(profile.counts[layer, expert]):
            yield layer, expert, count / float(totals[layer])


def _numbers(counts: F64) -> dict[str, Any]:
    """What is told of all layers, and of each."""
    return {
        "used": int(np.count_nonzero(counts)),
        "hottest_share": float(counts.max() / counts.sum()) if counts.any() else 0.0,
        "experts_for": {str(share): covering(counts, share / 100) for share in SHARES},
    }


def _coverage(counts: F64) -> Table:
    table = _table("uses", "experts", "of all")
    for share in SHARES:
        experts = covering(counts, share / 100)
        table.add_row(f"{share} %", str(experts), f"{experts / counts.size:.1%}")
    return table


def _layers(counts: F64) -> Table:
    table = _table("layer", "used", *(f"for {share} %" for share in SHARES), "hottest", "its share")
    for layer, row in _used_layers(counts):
        needed = (str(covering(row, share / 100)) for share in SHARES)
        hottest = int(row.argmax())
        table.add_row(str(layer), str(np.count_nonzero(row)), *needed, str(hottest), f"{row[hottest] / row.sum():.1%}")
    return table


def _used_layers(counts: F64) -> list[tuple[int, F64]]:
    """Layers with their counts; dense ones, and such as nobody used, have none."""
    return [(layer, row) for layer, row in enumerate(counts) if row.any()]


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
