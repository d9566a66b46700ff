"""The options that name a device and how much of its memory experts may take, as several commands have them."""

from __future__ import annotations

from typing import Any

import click

from coordinator.config import DEVICES, MAX_VRAM_GIB, is_device
from protocol.errors import ConfigError


class _Device(click.types.StringParamType):
    """A device's name."""

    name = "cpu|cuda:N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_device(value):
            raise ConfigError(f"--device is {value or 'empty'}, expected {DEVICES}")
        return str(value)


class Vram(click.types.StringParamType):
    """GiB, or "auto"."""

    name = "auto|number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != "auto" and not _is_gib(value):
            expected = f"auto or a number from 0 to {MAX_VRAM_GIB}"
            raise ConfigError(f"--vram-gib is {value or 'empty'}, expected {expected}")
        return str(value)


def _is_gib(text: str) -> bool:
    try:
        return 0 <= float(text) <= MAX_VRAM_GIB  # which NaN is not
    except ValueError:
        return False


DEVICE = click.option("--device", type=_Device(), help="Where attention, router and head are computed.  [default: cpu]")
VRAM_GIB = click.option(
    "--vram-gib", type=Vram(), help="GiB of experts in the memory of --device, 0 for none.  [default: auto]"
)


def settled(device: str | None, vram_gib: str | None) -> tuple[str, float | None]:
    """Both options as CoordinatorConfig has them. ConfigError for memory of no device."""
    if vram_gib is not None and device in (None, "cpu"):
        raise ConfigError("--vram-gib is memory of a GPU: it needs --device cuda:0, or another")
    return device or "cpu", None if vram_gib is None or vram_gib == "auto" else float(vram_gib)
