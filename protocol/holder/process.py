"""The process of a holder of experts, but for what it holds them in: options, signals, Hello, both loops, exit code.

Exit code 0 after Stop or a signal; 2 when it is refused, cannot start or never finds a coordinator; 1 when it fails, or
when the coordinator is gone for good. What went wrong is the last line on stderr, after `error: `.

SIGTERM drains: the process leaves once others hold its experts. A second one, SIGINT and SIGHUP end it at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType

import native
from protocol.codec import MAX_FRAME_BYTES
from protocol.ending import last_words, why
from protocol.endpoints import as_dialled, check_endpoint
from protocol.holder.control import Control, Experts, ignore_desk
from protocol.holder.membership import DRAIN_S, Membership
from protocol.holder.serve import Desk, Leave, Orders, Progress, compute
from protocol.keys import DialKeys, dial_keys
from protocol.messages import ALL_EXPERTS, NO_EXPERTS, PROTOCOL, Hello
from protocol.model import Model
from protocol.startup import loaded
from protocol.wire import Dialled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What a process holds, and what its Hello says of it."""

    experts: Experts
    role: str
    isa: str
    threads: int
    room: int
    pages: str
    memory: int = -1
    entry_ns: int = 0
    joined: Callable[[Desk], None] = ignore_desk
    """Hears of every desk that the compute loop is given, in the control thread."""
    loop: Callable[[Orders, Progress], Leave] | None = None
    """What the process does instead of computing experts, if it does."""


Opening = Callable[[Model], AbstractContextManager[Holder]]
"""Makes the holder of an open model's experts. ExpertmeshError if that cannot be."""


def parser(role: str, description: str, *, needs_model: bool = True) -> argparse.ArgumentParser:
    """The options that all holders have; one that can do without a model's file has `--model` as a choice."""
    made = argparse.ArgumentParser(prog=role, description=description)
    add = made.add_argument
    add("--connect", required=True, metavar="ENDPOINT", help="where the coordinator listens")
    what = "the GGUF model: a file, one of its files, or their folder"
    add("--model", required=needs_model, metavar="FILE", help=what)
    add("--name", default=f"{socket.gethostname()}-{os.getpid()}", help="what people call this process")
    add("--orphan-s", type=_seconds, default=60.0, metavar="S", help="leave after so long without a coordinator")
    add(
        "--drain-s",
        type=_seconds_or_none,
        default=DRAIN_S,
        metavar="S",
        help="after SIGTERM wait so long for others to hold its experts",
    )
    add("--keys", type=Path, metavar="PATH", help="key file, or folder of keys, to prove who this is")
    add("--log", choices=("debug", "info", "warning", "error"), default="info", help="what to log")
    add("--parent", type=int, metavar="PID", help="die with this process")
    return made


def run(options: argparse.Namespace, opening: Opening, model: Callable[[], Model] | None = None) -> int:
    """Hold experts until it is time to leave; returns the exit code. `model` opens another one than `--model` names."""
    if options.parent is not None and not native.die_with_parent(options.parent):
        return 0
    logging.basicConfig(stream=sys.stderr, level=options.log.upper(), format="%(asctime)s %(levelname)s %(message)s")
    try:
        leave = _hold(options, opening, model or (lambda: Model.open(options.model)))
    except Exception as error:
        code, reason = why(error, "the process")
        leave = Leave(code=code, reason=reason)
    if leave.code:
        last_words(leave.reason)
    else:
        log.info("leaving: %s", leave.reason)
    return leave.code


def _hold(options: argparse.Namespace, opening: Opening, open_model: Callable[[], Model]) -> Leave:
    """Open everything, serve, close everything. ExpertmeshError if the model or the endpoint is of no use."""
    keys = dial_keys(options.keys)
    endpoint = check_endpoint(options.connect, dial=True, keyed=keys is not None)
    orders, progress, found = Orders(), Progress(), Event()
    with open_model() as model, opening(model) as holder:

        def joined(desk: Desk) -> None:
            found.set()
            holder.joined(desk)

        geometry, hello = model.geometry, _hello(options, model, holder)
        control = Control(
            Membership(
                hello,
                endpoint=options.connect,
                orphan_s=options.orphan_s,
                drain_s=options.drain_s,
                now=time.monotonic(),
            ),
            dial=lambda: Dialled(endpoint, keys=keys, patient=found.is_set()),
            shape=(geometry.layers, geometry.experts),
            bank=holder.experts,
            orders=orders,
            progress=progress,
            joined=joined,
        )
        _leave_on_signals(orders, control)  # until now they end it at once: opening a device may take a minute
        loaded()
        log.info("dialling %s as %s", endpoint, options.name)
        control.start()
        in_order = False
        try:
            loop = holder.loop or partial(_compute, partial(_dial_work, endpoint, keys), holder.experts)
            leave = loop(orders, progress)
            in_order = True
        finally:
            control.finish(farewell=in_order)
    return leave


def _compute(dial_work: Callable[[str], Dialled], experts: Experts, orders: Orders, progress: Progress) -> Leave:
    return compute(orders, dial_work, experts, progress)


def _dial_work(control: str, keys: DialKeys | None, named: str) -> Dialled:
    """A work connection to whoever is dialled at `control` and has `named` this endpoint for it."""
    work = as_dialled(control, named)
    return Dialled(work, keys=keys, patient=True, max_frame_bytes=MAX_FRAME_BYTES)


def _hello(options: argparse.Namespace, model: Model, holder: Holder) -> Hello:
    return Hello(
        protocol=PROTOCOL,
        role=holder.role,
        name=options.name,
        incarnation=secrets.token_hex(8),
        pid=os.getpid(),
        host=socket.gethostname(),
        fingerprint=model.fingerprint,
        geometry=model.geometry.handshake(),
        isa=holder.isa,
        threads=holder.threads,
        entry_ns=holder.entry_ns,
        memory=holder.memory,
        room=holder.room,
        pages=holder.pages,
        able=ALL_EXPERTS if model.there is None else model.there,
        held=NO_EXPERTS,
    )


def _leave_on_signals(orders: Orders, control: Control) -> None:
    asked: set[int] = set()

    def leave(number: int, frame: FrameType | None) -> None:
        reason = signal.Signals(number).name
        if number == signal.SIGTERM and number not in asked:
            asked.add(number)
            control.drain(reason)
        else:
            orders.give(Leave(code=0, reason=reason))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, leave)


def _seconds(text: str) -> float:
    seconds = _seconds_or_none(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text} found, a number above 0 expected")
    return seconds


def _seconds_or_none(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} found, a number of 0 or more expected")
    return seconds
