"""An expert worker: `python -P -m expert_worker.main --connect ENDPOINT --model FILE`.

Exit code 0 after Stop, a signal, or when the coordinator is gone for good; 2 when it is refused, cannot start or never
finds a coordinator; 1 when it fails. What went wrong is the last line on stderr, after `error: `.
"""

from __future__ import annotations

from protocol.startup import first_of_all, refuse

try:
    import native
except ImportError as error:
    refuse(error)

if __name__ == "__main__":  # and only then load the rest
    first_of_all(native.die_with_parent)

import argparse
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence
from types import FrameType

from expert_worker.bank import ExpertBank
from expert_worker.control import Control
from expert_worker.membership import Membership
from expert_worker.serve import Leave, Orders, Progress, compute
from protocol.codec import MAX_FRAME_BYTES
from protocol.errors import ExpertmeshError
from protocol.messages import PROTOCOL, Hello
from protocol.model import Model
from protocol.wire import Dialled, check_endpoint

log = logging.getLogger(__name__)

MAX_THREADS = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until it leaves; returns the exit code."""
    options = _parse(arguments)
    if options.parent is not None and not native.die_with_parent(options.parent):
        return 0
    logging.basicConfig(stream=sys.stderr, level=options.log.upper(), format="%(asctime)s %(levelname)s %(message)s")
    try:
        leave = _work(options)
    except ExpertmeshError as error:
        leave = Leave(code=2, reason=str(error))
    except Exception as error:
        log.debug("the worker failed", exc_info=True)
        leave = Leave(code=1, reason=f"{type(error).__name__}: {error}")
    if leave.code:
        sys.stderr.write(f"error: {' '.join(leave.reason.split())}\n")
    else:
        log.info("leaving: %s", leave.reason)
    return leave.code


def _work(options: argparse.Namespace) -> Leave:
    """Open everything, serve, close everything. ExpertmeshError if the model or the endpoint is of no use."""
    endpoint = check_endpoint(options.connect, dial=True)
    orders, progress = Orders(), Progress()
    _leave_on_signals(orders)
    with Model.open(options.model) as model:
        geometry = model.geometry
        hello = _hello(options, model)
        with ExpertBank(model, native.Pool(options.threads)) as bank:
            control = Control(
                Membership(hello, endpoint=options.connect, orphan_s=options.orphan_s, now=time.monotonic()),
                dial=lambda: Dialled(endpoint),
                shape=(geometry.layers, geometry.experts),
                bank=bank,
                orders=orders,
                progress=progress,
            )
            gc.freeze()  # what is there now stays: collections in the compute loop need not look at it
            log.info("dialling %s as %s", endpoint, options.name)
            control.start()
            in_order = False
            try:
                leave = compute(orders, _dial_work, bank, progress)
                in_order = True
            finally:
                control.finish(farewell=in_order)
    return leave


def _dial_work(endpoint: str) -> Dialled:
    return Dialled(endpoint, max_frame_bytes=MAX_FRAME_BYTES)


def _hello(options: argparse.Namespace, model: Model) -> Hello:
    return Hello(
        protocol=PROTOCOL,
        role="worker",
        name=options.name,
        incarnation=secrets.token_hex(8),
        pid=os.getpid(),
        host=socket.gethostname(),
        fingerprint=model.fingerprint,
        geometry=model.geometry.handshake(),
        isa=native.isa(),
        threads=options.threads,
        room=-1,
    )


def _leave_on_signals(orders: Orders) -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        orders.give(Leave(code=0, reason=signal.Signals(number).name))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, leave)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="expert_worker", description="Hold experts and compute them.")
    parser.add_argument("--connect", required=True, metavar="ENDPOINT", help="where the coordinator listens")
    parser.add_argument(
        "--model", required=True, metavar="FILE", help="the GGUF model: a file, one of its files, or their folder"
    )
    parser.add_argument("--name", default=f"{socket.gethostname()}-{os.getpid()}", help="what people call this worker")
    parser.add_argument("--threads", type=_thread_count, default=1, metavar="N", help="threads of the kernels")
    parser.add_argument(
        "--orphan-s", type=_seconds, default=60.0, metavar="S", help="leave after so long without a coordinator"
    )
    parser.add_argument("--log", choices=("debug", "info", "warning", "error"), default="info", help="what to log")
    parser.add_argument("--parent", type=int, metavar="PID", help="die with this process")
    return parser.parse_args(arguments)


def _thread_count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{count} found, 1 to {MAX_THREADS} expected")
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} found, a number above 0 expected")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
