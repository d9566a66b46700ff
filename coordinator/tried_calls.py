"""What a call takes beside kernels on this machine: tried with a process that answers zeros, as a worker would.

It reads as many bytes as the call's experts have before it answers, for that is what caches are full of afterwards:
waking up, checking and packing take longer then than in a process that does nothing else.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

import native
from coordinator.calls import Activations, call_for
from coordinator.plan import NO_RUNNERS, NOBODY_ELSE, plan_layer
from coordinator.replies import add_reply
from protocol.errors import ConfigError
from protocol.messages import F32, I32, I64, OpenWork, Stop, Sums
from protocol.wire import Bound, longest_work_frame, wait

WITHIN_S = 20.0
"""Time for the process to start, and to answer a call."""


@dataclass(slots=True, eq=False)
class TriedCalls:
    """Calls one after another, as a layer makes them, and how long each part of them took, in seconds."""

    _work: Bound
    _peer: bytes
    _experts: int
    send_s: list[float] = field(default_factory=list)
    """Making a call, and handing it over: processor time, for others may run in between."""
    take_s: list[float] = field(default_factory=list)
    """Taking in the answer, likewise."""
    apart_s: list[float] = field(default_factory=list)
    """All else that a call takes, but for what the process says that it computed."""

    def call(self, layer: int, rows: native.Rows, quantised: bool, ids: I32, weights: F32, sums: I64) -> None:
        """All entries of ids and weights (rows, k), of rows that travel quantised or not; `sums` stay as they are.

        ConfigError if no answer comes.
        """
        owner = np.zeros(self._experts, np.int64)
        [part] = plan_layer(layer, ids, weights, owner, NOBODY_ELSE, NO_RUNNERS)
        began, used = time.perf_counter(), time.thread_time()
        activations = Activations.of(rows, quantised)
        call = call_for(part, activations, len(ids), session="trial", placement=0, step=0, layer=layer)
        self._work.send(self._peer, call)
        send_s = time.thread_time() - used
        if not wait([self._work], WITHIN_S):
            raise _silent()
        used = time.thread_time()
        heard = self._work.receive(0)
        if heard is None or not isinstance(heard[1], Sums):
            raise _silent()
        add_reply(heard[1], part.row, sums)
        take_s, whole_s = time.thread_time() - used, time.perf_counter() - began
        self.send_s.append(send_s)
        self.take_s.append(take_s)
        self.apart_s.append(max(0.0, whole_s - send_s - take_s - heard[1].busy_us * 1e-6))

    def forget(self) -> None:
        """What was tried so far was for warming."""
        for times in (self.send_s, self.take_s, self.apart_s):
            times.clear()


@contextmanager
def tried_calls(width: int, experts: int, call_bytes: int) -> Iterator[TriedCalls]:
    """With a process that answers calls for rows of `width` columns and so many experts, reading `call_bytes` for each.

    ConfigError if it does not start.
    """
    endpoint = f"ipc://@expertmesh-trial-{secrets.token_hex(8)}"
    work = Bound(endpoint, max_frame_bytes=longest_work_frame(width))
    command = [sys.executable, "-P", "-m", "coordinator.zero_answers", endpoint, str(width), str(call_bytes)]
    child = subprocess.Popen([*command, "--parent", str(os.getpid())], stdin=subprocess.DEVNULL)
    try:
        heard = work.receive(WITHIN_S)
        if heard is None or not isinstance(heard[1], OpenWork):
            raise _silent()
        yield TriedCalls(work, heard[0], experts)
        work.send(heard[0], Stop())
        child.wait(WITHIN_S)
    finally:
        work.close()
        child.kill()
        child.wait()


def _silent() -> ConfigError:
    return ConfigError("calls cannot be tried: the process that should answer them does not")
