"""The lookahead loop: layer inputs in, hints out, session after session; the control thread says when."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from expert_worker.lookahead.newest import Newest
from expert_worker.lookahead.predict import Predictor
from protocol.holder.serve import Desk, Leave, Orders, Progress, one_after_the_other
from protocol.messages import F32, LayerInput, Message, Warm

log = logging.getLogger(__name__)

ORDERS_S = 0.1
"""How soon an order of the control thread is noticed while nothing is published."""
MAX_DRAINED = 64
"""Inputs taken in at one go: a flood of them must not hold up the loop."""


class Inputs(Protocol):
    """What layer inputs come from (protocol.wire.Subscriber)."""

    dropped: int

    def receive(self, timeout_s: float = 0) -> Message | None: ...


class Hints(Protocol):
    """What hints go to (protocol.wire.Publisher)."""

    def wanted(self) -> bool: ...
    def send(self, message: Message) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lookahead:
    """How to look ahead."""

    subscribe: Callable[[str], AbstractContextManager[Inputs]]
    """Takes the endpoint of layer inputs."""
    publish: Callable[[str], AbstractContextManager[Hints]]
    """Takes the session."""
    predictor: Predictor
    width: int
    """Columns of rows that it can take."""
    delay_s: float = 0.0
    """Each prediction takes so much longer than it needs."""

    def run(self, orders: Orders, progress: Progress) -> Leave:
        """Serve one session after the other until told to leave."""

        def sit(desk: Desk) -> Desk | Leave:
            newest = Newest(desk.session)
            with self.subscribe(desk.inputs) as inputs, self.publish(desk.session) as hints:
                order = _serve(self, newest, inputs, hints, orders, progress)
            log.info("session %s: %d layer inputs were overtaken by newer ones", desk.session, newest.skipped)
            return order

        return one_after_the_other(orders, sit)


def _serve(
    how: Lookahead, newest: Newest, inputs: Inputs, hints: Hints, orders: Orders, progress: Progress
) -> Desk | Leave:
    """Answer what is newest with a hint, until there is another order."""
    malformed, waits_since = progress.malformed, time.perf_counter()
    progress.step = progress.layer = -1
    while (order := orders.take()) is None:
        newest.hear(_drained(inputs, ORDERS_S))
        progress.malformed, progress.misdirected = malformed + inputs.dropped, newest.foreign
        began = time.perf_counter()
        progress.wait_us += int((began - waits_since) * 1e6)
        while (message := newest.next()) is not None:
            if how.delay_s and (order := orders.take(how.delay_s)) is not None:
                return order
            experts = how.predictor.predict(message.step, message.layer, rows_of(message, how.width))
            newest.hear(_drained(inputs, 0))
            wanted = len(experts) and hints.wanted() and not newest.is_passed(message.step, message.layer + 1)
            if wanted:
                hints.send(Warm(session=message.session, step=message.step, layer=message.layer + 1, experts=experts))
                progress.entries += len(experts)
            progress.step, progress.layer, progress.calls = message.step, message.layer, progress.calls + 1
        waits_since = time.perf_counter()
        progress.busy_us += int((waits_since - began) * 1e6)
    return order


def rows_of(message: LayerInput, width: int) -> F32:
    """The activations (rows, width) in fp32; no rows if they have another width."""
    given = message.codes if len(message.codes) else message.values
    if given.shape[1] != width:
        return np.empty((0, width), np.float32)
    if given is message.values:
        return message.values
    with np.errstate(all="ignore"):  # nobody has checked that the scales are finite
        blocks = message.codes.reshape(len(message.codes), -1, 32) * message.scales[:, :, None]
    return blocks.reshape(len(message.codes), width)


def _drained(inputs: Inputs, timeout_s: float) -> list[Message]:
    """All that has come; the first may take its time."""
    messages: list[Message] = []
    while len(messages) < MAX_DRAINED:
        message = inputs.receive(0 if messages else timeout_s)
        if message is None:
            break
        messages.append(message)
    return messages
