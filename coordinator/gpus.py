"""The graphics processors of this machine, as the driver's own tool lists them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits")
WITHIN_S = 10.0
"""A driver that has to wake its devices takes a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device; memory in bytes."""

    name: str
    total: int
    free: int


def gpus_here() -> list[Gpu]:
    """All devices in the driver's order; none where there is no driver, or it does not answer."""
    try:
        listed = subprocess.run(QUERY, capture_output=True, text=True, timeout=WITHIN_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return list(filter(None, map(_gpu, listed.splitlines())))


def _gpu(line: str) -> Gpu | None:
    """From "NAME, MiB, MiB"; None for anything else."""
    name, _, sizes = line.partition(",")
    try:
        total, free = (int(size) << 20 for size in sizes.split(","))
    except ValueError:
        return None
    return Gpu(name=name.strip(), total=total, free=free)
