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
from coordinator.device_types import ExpertSlots
from coordinator.placement import Stock, own_share
from coordinator.wording import counted
from native import cuda
from protocol.errors import ConfigError, ExpertError
from protocol.messages import U8
from protocol.model import Model

log = logging.getLogger(__name__)

GIB = 1 << 30
LEAST_RESERVE = GIB
"""Bytes that are left for caches and for what a step needs, if nobody says how much experts may take."""
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
    name: str, vram_gib: float | None, model: Model, pool: native.Pool, *, max_rows: int, kv: str
) -> Iterator[Devices]:
    """The device `name`, with the model's dense weights, and room for `vram_gib` GiB of experts (None: what fits).

    ConfigError if there is no such device, or no room for that; ModelError as DenseModel's.
    """
    if name == "cpu":
        nothing = np.zeros((len(model.layout.layers), model.layout.experts), np.uint8)
        yield Devices(name=name, dense=DenseModel(model, pool, max_rows, kv), slots=None, own=nothing)
        return
    with ExitStack() as stack:
        yield _on_gpu(name, vram_gib, model, stack, max_rows, kv)


def _on_gpu(name: str, vram_gib: float | None, model: Model, stack: ExitStack, max_rows: int, kv: str) -> Devices:
    from coordinator.dense_cuda import CudaDense  # only for those who have such a device
    from peer_gpu.slots import ExpertSlots as Slots

    try:
        device = cuda.open_device(name)
        device.use()
        log.info("device %s: %s", name, device.description)
        dense = CudaDense(model, device, max_rows, kv)
        stock = Stock.of(model.layout)
        limit = slots_limit(vram_gib, stock.bytes, device)
        own = own_share(stock, limit)
        slots = None
        if own.any():
            slots = Slots(device, model, limit)
            stack.callback(slots.close)
    except cuda.DeviceError as error:
        raise ConfigError(str(error)) from error
    return Devices(name=name, dense=dense, slots=slots, own=own)


def slots_limit(vram_gib: float | None, wanted: int, device: cuda.Device) -> int:
    """Bytes that experts may take of a device that has the dense weights already, `wanted` at most.

    Unless told how much, a tenth of the device is left for caches. ConfigError if so much is not free.
    """
    free, total = device.memory()
    if vram_gib is None:
        return max(0, min(wanted, free - max(total // 10, LEAST_RESERVE)))
    limit = min(wanted, int(vram_gib * GIB))
    if limit > free:
        raise ConfigError(
            f"device {device.name}: {limit / GIB:.2f} GiB of experts are to lie there, and beside the dense weights "
            f"{free / GIB:.2f} of {total / GIB:.2f} GiB are free; vram_gib says how much experts may take"
        )
    return limit


def _prepare(slots: ExpertSlots, name: str, layer: int, own: U8) -> None:
    try:
        slots.prepare(layer, np.flatnonzero(own))
    except ExpertError as error:
        raise ConfigError(f"device {name}: {error}") from error


def _pace(slots: ExpertSlots, began: float) -> str:
    seconds = max(time.monotonic() - began, 1e-6)
    return f"{slots.used / GIB:.2f} GiB in {seconds:.1f} s, {slots.used / GIB / seconds:.2f} GiB/s"
