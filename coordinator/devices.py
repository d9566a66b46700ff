"""What the coordinator computes with: its dense half, on the CPU or on a GPU, and slots of experts in that GPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

import native
from coordinator.dense import DenseModel
from coordinator.dense_half import DenseHalf
from coordinator.placement import own_share
from native import cuda
from peer_gpu.slots import ExpertSlots, room_on, warn_if_none_fits
from protocol.errors import ConfigError, ExpertError
from protocol.gib import GIB
from protocol.messages import I32, U8
from protocol.model import Model
from protocol.stock import Stock
from protocol.wording import counted

log = logging.getLogger(__name__)

LEAST_RESERVE = GIB
"""Bytes that are left for caches and for what a step needs, and a tenth of the device at least, if nobody says how much
experts may take."""
SAY_EVERY_S = 2.0
"""How often progress of filling is logged."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Devices:
    """The coordinator's device, opened."""

    name: str
    """"cpu" or "cuda:N"."""
    dense: DenseHalf
    slots: ExpertSlots | None
    """None where no expert is to lie in the device's memory."""
    own: U8
    """(layers, experts): 1 for those that are to lie there."""

    def fill(self) -> Iterator[None]:
        """Copy the experts to the device, a layer a turn. ConfigError if it has no room, or the model's file changed.

        Nothing can be computed before all turns are over.
        """
        if self.slots is None:
            return
        began = said = time.monotonic()
        layers = np.flatnonzero(self.own.any(axis=1)).tolist()
        for done, layer in enumerate(layers, 1):
            _prepare(self.slots, self.name, layer, self.own[layer])
            if (now := time.monotonic()) - said >= SAY_EVERY_S and done < len(layers):
                said = now
                log.info("filling %s: %d of %d layers, %s", self.name, done, len(layers), _pace(self.slots, began))
            yield
        experts = counted(int(self.own.sum()), "expert")
        log.info("%s holds %s, %s", self.name, experts, _pace(self.slots, began))


@contextmanager
def opened(
    name: str,
    vram_gib: float | None,
    model: Model,
    pool: native.Pool,
    *,
    max_rows: int,
    kv: str,
    rank: I32 | None = None,
) -> Iterator[Devices]:
    """The device `name`, with the model's dense weights, and room for `vram_gib` GiB of experts (None: what fits).

    `rank` (layers, experts) is lower for what is expected to be used more, as of `placement.place`.

    ConfigError if there is no such device, or no room for that; ModelError as DenseModel's.
    """
    if name == "cpu":
        nothing = np.zeros((len(model.layout.layers), model.layout.experts), np.uint8)
        yield Devices(name=name, dense=DenseModel(model, pool, max_rows, kv), slots=None, own=nothing)
        return
    with ExitStack() as stack:
        yield _on_gpu(name, vram_gib, model, stack, max_rows, kv, rank)


def _on_gpu(
    name: str, vram_gib: float | None, model: Model, stack: ExitStack, max_rows: int, kv: str, rank: I32 | None
) -> Devices:
    from coordinator.dense_cuda import CudaDense  # without a GPU it is never needed

    try:
        device = cuda.open_device(name)
        device.use()
        log.info("device %s: %s", name, device.description)
        dense = CudaDense(model, device, max_rows, kv)
        room = room_on(device, vram_gib, model.layout, reserve=max(device.memory()[1] // 10, LEAST_RESERVE))
        if vram_gib != 0:
            warn_if_none_fits(device, room, model.layout)
        own = own_share(Stock.of(model.layout), room, rank)
        slots = stack.enter_context(ExpertSlots(device, model, room, recorded=True)) if own.any() else None
    except cuda.DeviceError as error:
        raise ConfigError(str(error)) from error
    return Devices(name=name, dense=dense, slots=slots, own=own)


def _prepare(slots: ExpertSlots, name: str, layer: int, own: U8) -> None:
    try:
        slots.prepare(layer, np.flatnonzero(own))
    except ExpertError as error:
        raise ConfigError(f"filling {name}: {error}") from error


def _pace(slots: ExpertSlots, began: float) -> str:
    seconds = max(time.monotonic() - began, 1e-6)
    return f"{slots.used / GIB:.2f} GiB in {seconds:.1f} s, {slots.used / GIB / seconds:.2f} GiB/s"
