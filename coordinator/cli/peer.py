"""`expertmesh peer`: experts in a GPU's memory, by a process started by hand, on this or another machine."""

from __future__ import annotations

from typing import Any

import click

from coordinator.cli.device_options import Gib
from coordinator.cli.holding import CONNECT, DRAIN_S, ITS_MODEL, KEYS, NAME, ORPHAN_S, become
from coordinator.config import MAX_DEVICE, is_device
from protocol.errors import ConfigError


@click.command("peer")
@CONNECT
@ITS_MODEL
@NAME
@KEYS
@click.option("--device", default="cuda:0", show_default=True, metavar="cuda:N", help="Which GPU.")
@click.option(
    "--vram-gib", type=Gib(), default="auto", show_default=True, help="GiB of experts in its memory; auto: what fits."
)
@ORPHAN_S
@DRAIN_S
def command(device: str, vram_gib: str, **common: Any) -> None:
    """Hold experts in a GPU's memory for the coordinator at ENDPOINT until it stops or is gone."""
    if device == "cpu" or not is_device(device):
        raise ConfigError(f"--device is {device or 'empty'}, expected cuda:0 to cuda:{MAX_DEVICE}")
    become("peer_gpu.main", f"--device={device}", f"--vram-gib={vram_gib}", **common)
