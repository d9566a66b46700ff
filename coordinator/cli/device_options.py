"""The options that name a device and how much of its memory experts may take, as several commands have them."""

from __future__ import annotations

from typing import Any

import click

from coordinator.config import DEVICES, MAX_VRAM_GIB, is_device
from protocol.errors import ConfigError


class _Device(click.ParamType[str]):
    """A device's name."""

    name = "cpu|cuda:N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_device(value):
            raise ConfigError(f"--device is {value or 'empty'}, expected {DEVICES}")
        return str(value)


class _Vram(click.ParamType[float | str]):
    """GiB, or "auto"."""

    name = "auto|number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value == "auto":
            return "auto"
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number <= MAX_VRAM_GIB:  # which NaN is not, either
            expected = f"auto or a number from 0 to {MAX_VRAM_GIB}"
            raise ConfigError(f"--vram-gib is {value or 'empty'}, expected {expected}")
        return number


DEVICE = click.option("--device", type=_Device(), help="Where attention, router and head are computed.  [default: cpu]")
VRAM_GIB = click.option(
    "--vram-gib", type=_Vram(), help="GiB of experts in the memory of --device, 0 for none.  [default: auto]"
)


def settled(device: str | None, vram_gib: float | str | None) -> tuple[str, float | None]:
    """Both options as CoordinatorConfig has them. ConfigError for memory of no device."""
    if vram_gib is not None and device in (None, "cpu"):
        raise ConfigError("--vram-gib is memory of a GPU: it needs --device cuda:0, or another")
    return device or "cpu", None if vram_gib in (None, "auto") else float(vram_gib)
