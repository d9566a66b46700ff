"""What `expertmesh worker` and `expertmesh peer` share: options of whoever holds experts, and becoming that process."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import click

from coordinator.cli.numbers import Whole
from coordinator.cli.paths import MODEL, MODEL_HELP, Existing
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError
from protocol.keys import dial_keys
from protocol.startup import SIGNALS

CONNECT = click.option(
    "--connect", required=True, metavar="ENDPOINT", help="Where the coordinator listens: tcp://host:port."
)
ITS_MODEL = click.option("--model", required=True, type=MODEL, help=MODEL_HELP)
NAME = click.option("--name", default=None, help="What to call it.  [default: host name and process number]")
KEYS = click.option(
    "--keys", type=Existing(folder=True), help="A key file, or a folder of keys: see expertmesh keys --help."
)
ORPHAN_S = click.option(
    "--orphan-s",
    type=Whole(1, 10**6),
    default=60,
    show_default=True,
    help="Leave after so many seconds without a coordinator.",
)
DRAIN_S = click.option(
    "--drain-s",
    type=Whole(0, 10**6),
    default=20,
    show_default=True,
    help="After SIGTERM wait so many seconds for others to hold its experts.",
)


def become(
    module: str,
    *more: str,
    connect: str,
    model: Path | None,
    name: str | None,
    keys: Path | None,
    orphan_s: int,
    drain_s: int = 0,
) -> NoReturn:
    """Run `module` in place of this process, with `more` options. ConfigError if one of the others is of no use."""
    from coordinator.hello import MAX_NAME, is_name

    check_endpoint(connect, dial=True, keyed=keys is not None)
    dial_keys(keys)
    name = f"{socket.gethostname()[:40]}-{os.getpid()}" if name is None else name
    if not is_name(name):
        raise ConfigError(f"--name is {name!r}, expected 1 to {MAX_NAME} printable characters")
    arguments = [f"--connect={connect}", f"--name={name}"]  # which may begin with a dash
    arguments += [] if model is None else [f"--model={model}"]
    arguments += [] if keys is None else [f"--keys={keys}"]
    arguments += [f"--orphan-s={orphan_s}", f"--drain-s={drain_s}", *more]
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until protocol.startup has them end it without a traceback
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
