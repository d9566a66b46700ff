"""What profiles are worth: how many uses that others have counted find their expert among those ranked first.

`profile_worth.py RANKING... --uses FILE`; the result stands in docs/profiles.md.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from benchmark_page import table

from coordinator.profile import Profile
from coordinator.profile_file import read_profile
from protocol.messages import I32
from protocol.ranking import by_rank

ROOM = (0.25, 0.5, 0.75)
"""For so much of all experts."""


def found(uses: Profile, rank: I32 | None, room: float) -> float:
    """The share of all uses that is of the experts for which there is room."""
    first = by_rank(np.ones(uses.counts.shape, np.uint8), rank)[: int(room * uses.counts.size)]
    layers, experts = zip(*first, strict=True)
    return float(uses.counts[layers, experts].sum()) / uses.uses


@click.command()
@click.argument("rankings", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "--uses", "path", type=click.Path(path_type=Path), required=True, help="What was counted of other prompts."
)
def main(rankings: tuple[Path, ...], path: Path) -> None:
    """Compare the profiles RANKINGS by the uses of another one."""
    uses = read_profile(path)
    ranks = {"no profile": None, **{each.name: read_profile(each, uses).rank() for each in (*rankings, path)}}
    rows = [[name, *(f"{found(uses, rank, room):.0%}" for room in ROOM)] for name, rank in ranks.items()]
    print(table([f"ranked by, of {path.name}", *(f"{room:.0%} of the experts" for room in ROOM)], rows), end="")


if __name__ == "__main__":
    main()
