"""The options that name a device and how much of its memory experts may take, as several commands have them."""

from __future__ import annotations

from typing import Any

import click

from coordinator.config import DEVICES, is_device
from protocol.errors import ConfigError
from protocol.gib import GIB_EXPECTED, read_gib


class _Device(click.types.StringParamType):
    """A device's name."""

    name = "cpu|cuda:N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_device(value):
            raise ConfigError(f"--device is {value or 'empty'}, expected {DEVICES}")
        return str(value)


class Gib(click.types.StringParamType):
    """GiB, or "auto"."""

    name = "auto|number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            read_gib(value)
        except ValueError:
            name = "--vram-gib" if param is None else param.opts[0]
            raise ConfigError(f"{name} is {value or 'empty'}, expected {GIB_EXPECTED}") from None
        return str(value)


DEVICE = click.option("--device", type=_Device(), help="Where attention, router and head are computed.  [default: cpu]")
VRAM_GIB = click.option(
    "--vram-gib", type=Gib(), help="GiB of experts in the memory of --device, 0 for none.  [default: auto]"
)


def settled(device: str | None, vram_gib: str | None) -> tuple[str, float | None]:
    """Both options as CoordinatorConfig has them. ConfigError for memory of no device."""
    if vram_gib is not None and device in (None, "cpu"):
        raise ConfigError("--vram-gib is memory of a GPU: it needs --device cuda:0, or another")
    return device or "cpu", None if vram_gib is None else read_gib(vram_gib)
