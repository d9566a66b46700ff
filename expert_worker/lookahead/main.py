"""A lookahead process: `python -P -m expert_worker.lookahead.main --connect ENDPOINT --model FILE`.

One for each machine with workers that compute from files. It says Hello as a holder does, but holds nothing, and is
assigned nothing. What it has in common with those, exit codes included, is in `protocol.holder.process`.
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
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from expert_worker.lookahead.loop import Lookahead
from expert_worker.lookahead.predict import PREDICTORS, Oracle, Predictor
from expert_worker.lookahead.routers import Routers
from expert_worker.lookahead.trace import read_trace
from protocol.endpoints import as_dialled, check_endpoint, hints_endpoint
from protocol.errors import ConfigError, ExpertError
from protocol.holder import process
from protocol.holder.watched_files import WatchedFiles
from protocol.keys import dial_keys
from protocol.model import Model
from protocol.wire import Publisher, Subscriber

log = logging.getLogger(__name__)

NICE = 10
"""Whatever computes goes first on a busy core: while all are busy, nobody waits for a disk."""
MAX_DELAY_MS = 60_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Look ahead until it is time to leave; returns the exit code."""
    parser = process.parser("lookahead", "Predict experts that are needed next, and have their pages read.")
    parser.add_argument("--predictor", choices=(*PREDICTORS, "oracle"), default=next(iter(PREDICTORS)))
    parser.add_argument("--trace", type=Path, metavar="FILE", help="what the oracle reads")
    parser.add_argument("--delay-ms", type=_delay, default=0, metavar="N", help="take longer than needed, for tests")
    options = parser.parse_args(arguments)
    return process.run(options, lambda model: _opened(model, options))


@contextmanager
def _opened(model: Model, options: argparse.Namespace) -> Iterator[process.Holder]:
    routers = Routers.of(model)
    if len(routers.layers) < 2:
        raise ConfigError(f"{model.files.path}: one layer with experts, so there is none to look ahead to")
    keys, control = dial_keys(options.keys), check_endpoint(options.connect, dial=True, keyed=True)
    lookahead = Lookahead(
        subscribe=lambda named: Subscriber(as_dialled(control, named), keys=keys),
        publish=_publisher,
        predictor=_predictor(routers, options),
        width=model.geometry.width,
        delay_s=options.delay_ms / 1000,
    )
    log.info("predictor %s", options.predictor)
    os.nice(NICE)
    watched = WatchedFiles(file.file for file in model.files.files)  # a file that shrinks makes bad hints, no crash
    try:
        yield process.Holder(
            experts=_NoExperts(), role="lookahead", isa=native.isa(), threads=1, room=0, pages="", loop=lookahead.run
        )
    finally:
        watched.close()


def _predictor(routers: Routers, options: argparse.Namespace) -> Predictor:
    if (options.trace is not None) != (options.predictor == "oracle"):
        raise ConfigError("--predictor oracle and --trace FILE are of use together only")
    if options.trace is not None:
        return Oracle(read_trace(options.trace))
    return PREDICTORS[options.predictor](routers)


def _publisher(session: str) -> Publisher:
    try:
        return Publisher(hints_endpoint(session))
    except ConfigError as error:
        raise ConfigError(f"{error}: does another lookahead process of this cluster run on this machine?") from None


def _delay(text: str) -> int:
    delay = int(text)
    if not 0 <= delay <= MAX_DELAY_MS:
        raise argparse.ArgumentTypeError(f"{delay} found, 0 to {MAX_DELAY_MS} expected")
    return delay


class _NoExperts:
    """What a process has that holds none: nothing is assigned to it, and nothing asked."""

    source_name = "none"

    def counts(self) -> dict[str, int]:
        """Nothing is counted."""
        return {}

    def nothing(self, *_: object, **__: object) -> None:
        """There is nothing to look after."""

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """ExpertError to whoever asks for one."""
        raise ExpertError(0, -1, "a lookahead process holds no experts")

    tend = discard = nothing
    answer = make_room = prepare = stage = refuse


if __name__ == "__main__":
    sys.exit(main())
