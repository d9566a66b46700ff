"""`expertmesh logits`: the logits of every position of a sequence, computed in this process, for comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from coordinator.cli.device_options import DEVICE, VRAM_GIB, settled
from coordinator.cli.ids import parse_ids
from coordinator.cli.numbers import Whole
from coordinator.cli.paths import MODEL, MODEL_HELP
from coordinator.config import MAX_THREADS, default_threads
from coordinator.demo import demo_model
from coordinator.interrupts import Interrupts


@click.command("logits")
@click.option("--model", type=MODEL, help=f"{MODEL_HELP}  [default: the demo model]")
@click.option("--ids", required=True, metavar="1,2,3", help="The token ids, from position 0; @FILE has them in a file.")
@click.option("--out", required=True, metavar="FILE", help="The .npy file to write, in place of one that is there.")
@click.option("--kv", type=click.Choice(["f16", "f32"]), default="f16", show_default=True, help="Type of the cache.")
@click.option("--chunk", type=Whole(1, 512), default=64, show_default=True, help="Rows of one step.")
@click.option("--threads", type=Whole(1, MAX_THREADS), help="[default: the cores it may use]")
@DEVICE
@VRAM_GIB
@click.pass_obj
def command(
    interrupts: Interrupts,
    /,
    model: Path | None,
    ids: str,
    threads: int | None,
    device: str | None,
    vram_gib: str | None,
    **options: Any,
) -> None:
    """Write the fp32 logits of every position, (ids, vocabulary), as a NumPy file."""
    options["device"], options["vram_gib"] = settled(device, vram_gib)
    with interrupts.held():
        from coordinator.cli.logits_file import write_logits

    write_logits(model or demo_model(), parse_ids(ids, "--ids"), threads=threads or default_threads(), **options)
