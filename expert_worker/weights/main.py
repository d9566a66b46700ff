"""A weights process: `python -P -m expert_worker.weights.main --model FILE --listen ENDPOINT`.

Gives the model's files, in pieces, to workers that have none: beside the coordinator, so that no step waits for it.
With `--cache DIR --connect ENDPOINT` in place of the model it gives what is in a cache, and tells the one beside the
coordinator at ENDPOINT, which names it to workers.
Logs to stderr. Exit code 0 after SIGTERM or SIGINT; 2 when it cannot do what it was asked to, 1 when it fails; the last
line on stderr is then `error: ...`.
"""

from __future__ import annotations

from protocol.startup import first_of_all, loaded, refuse

try:
    import native
except ImportError as error:
    refuse(error)

if __name__ == "__main__":  # and only then load the rest
    first_of_all(native.die_with_parent)

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from expert_worker.weights.giving import Giving, bytes_for
from expert_worker.weights.joining import dialling, fetched_model, opened_cache, where_given
from expert_worker.weights.offering import Offering
from expert_worker.weights.place import Place
from expert_worker.weights.rate import Rate
from protocol.bulk import ASKED_FRAME_BYTES, BULK_FRAME_BYTES, DEFAULT_MB_S, MAX_MB_S, QUEUE
from protocol.ending import exit_code
from protocol.endpoints import check_named
from protocol.keys import ListenKeys, dial_keys, giving_keys
from protocol.messages import PieceBytes
from protocol.model import Model
from protocol.wire import Bound, public_of

log = logging.getLogger(__name__)

NICE = 19
"""Whatever computes goes first on a busy core."""
LOOK_S = 0.1
"""How soon a signal is noticed."""
OFFER_WITHIN_S = 300.0
"""Time for the coordinator's side to say which model it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Give weights until a signal comes; returns the exit code."""
    options = _parse(arguments)
    if options.parent is not None and not native.die_with_parent(options.parent):
        return 0
    logging.basicConfig(stream=sys.stderr, level=options.log.upper(), format="%(asctime)s %(levelname)s %(message)s")
    return exit_code(lambda: _run(options), "the weights process")


def _run(options: argparse.Namespace) -> None:
    if options.cache is not None:
        _give_from_cache(options)
        return
    with Model.open(options.model) as model:
        _give(Giving(model), options, None if options.keys is None else ListenKeys.load(options.keys))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="weights", description="Give a model's files to workers that have none.")
    add = parser.add_argument
    add("--model", type=Path, help="the GGUF model: a file, one of its files, or their folder")
    add("--cache", type=Path, metavar="DIR", help="give what is in this cache of a worker, instead")
    add("--connect", metavar="ENDPOINT", help="where the coordinator listens; with --cache")
    add("--listen", required=True, metavar="ENDPOINT", help="where workers dial")
    add("--keys", type=Path, metavar="PATH", help="folder of keys to listen with; with --cache, to dial with, too")
    add("--mb-s", type=_rate, default=DEFAULT_MB_S, metavar="N", help="megabytes a second at most, to all together")
    add("--parent", type=int, metavar="PID", help="die with this process")
    add("--log", choices=("debug", "info", "warning", "error"), default="info", help="what to log")
    options = parser.parse_args(arguments)
    if (options.model is None) == (options.cache is None) or (options.cache is None) != (options.connect is None):
        parser.error("either --model FILE or --cache DIR --connect ENDPOINT is expected")
    return options


def _give_from_cache(options: argparse.Namespace) -> None:
    keys, own = dial_keys(options.keys), None if options.keys is None else giving_keys(options.keys)
    place = _place(options, own)
    with fetched_model(options.connect, options.cache, OFFER_WITHIN_S, keys) as model, opened_cache(model) as cache:
        line = dialling(keys)(where_given(options.connect, keys))
        offering = Offering(line, model.fingerprint, place, cache)
        try:
            _give(Giving(model, cache), options, own, offering.tick)
        finally:
            offering.close()


def _place(options: argparse.Namespace, own: ListenKeys | None) -> Place:
    """Where others are told to dial. ConfigError if they cannot, or may not without a key."""
    return Place(check_named(options.listen, keyed=own is not None), "" if own is None else public_of(own.secret))


def _give(
    giving: Giving,
    options: argparse.Namespace,
    keys: ListenKeys | None,
    tick: Callable[[float], None] = lambda now: None,
) -> None:
    """Until a signal comes; `tick` is called again and again."""
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: signals.append(number))
    os.nice(NICE)
    rate = Rate(options.mb_s * 1e6, time.monotonic())
    sizes = {"max_frame_bytes": BULK_FRAME_BYTES, "heard_frame_bytes": ASKED_FRAME_BYTES}
    with Bound(options.listen, keys=keys, queue=QUEUE, **sizes) as bulk:
        loaded()
        pieces = given = 0
        log.info("giving model %s at %s, %g MB/s at most", giving.offer.fingerprint, bulk.endpoint, options.mb_s)
        while not signals:
            tick(time.monotonic())
            if (due_s := rate.due(time.monotonic())) > 0:
                time.sleep(min(due_s, LOOK_S))
            elif (received := bulk.receive(LOOK_S)) is not None:
                peer, message = received
                answer = giving.answer(message)
                if answer is None:
                    log.debug("dropped %s of peer %s", type(message).__name__, peer.hex())
                    continue
                sent = bulk.send(peer, answer)
                rate.sent(bytes_for(message, answer), time.monotonic())  # it was read, whoever hears it
                if sent and isinstance(answer, PieceBytes):
                    pieces, given = pieces + 1, given + len(answer.data)
        log.info("gave %d pieces, %.1f MB", pieces, given / 1e6)


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate <= MAX_MB_S:
        raise argparse.ArgumentTypeError(f"{text} found, a number above 0 and at most {MAX_MB_S} expected")
    return rate


if __name__ == "__main__":
    sys.exit(main())
