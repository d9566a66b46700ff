"""How fast a peer's device is: its own slots and runner, tried for a moment at the start on experts of zeros."""

from __future__ import annotations

import logging

import numpy as np

import native
from peer_gpu.runner import SlotRunner
from peer_gpu.slots import ExpertSlots
from protocol.errors import ExpertError
from protocol.holder.kernel_trial import timed
from protocol.layout import LayerExperts
from protocol.messages import I32, RunExperts

log = logging.getLogger(__name__)

WEIGHT_BYTES = 128 << 20
"""Of weights at most, as far as there is room: more than most devices' caches hold."""


def slot_trial(slots: ExpertSlots, runner: SlotRunner) -> int:
    """Nanoseconds for one expert of one row, of the fastest call; 0 if there is no room for any.

    To be called while nothing is held; nothing is held afterwards.
    """
    number, layer = next(iter(slots.layout.with_experts()))
    count = min(max(WEIGHT_BYTES // layer.slot_bytes, 1), slots.limit // layer.slot_bytes, slots.layout.experts)
    if not count:
        return 0
    try:
        slots.pretend(number, count)
        return timed(lambda experts: runner.answer(_work(number, layer, experts), 0).busy_us * 1e-6, count)
    except ExpertError as error:
        log.warning("nobody knows how fast %s is: %s", slots.device.name, error)
        return 0
    finally:
        slots.keep(np.zeros_like(slots.held))


def _work(number: int, layer: LayerExperts, experts: I32) -> RunExperts:
    """One row of zeros for all of these, as it would come from a coordinator."""
    values = np.zeros((1, layer.down.rows), np.float32)
    codes, scales = native.Rows(values).quantise()
    sent = int(layer.quantised_input)  # else the values are
    zeros = np.zeros(len(experts), np.int32)
    return RunExperts(
        session="",
        placement=0,
        step=0,
        layer=number,
        attempt=0,
        codes=codes[:sent],
        scales=scales[:sent],
        values=values[sent:],
        row=zeros[:1],
        entry_expert=experts,
        entry_row=zeros,
        entry_weight=np.ones(len(experts), np.float32),
    )
