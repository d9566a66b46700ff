"""The work of `expertmesh status`: ask a coordinator, once or again and again, and show what it answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live

from coordinator.cli.load import Load
from coordinator.cli.output import put
from coordinator.cli.status_page import Drawn, as_text
from coordinator.cli.status_view import Page, page
from coordinator.client import Client, SilentError
from coordinator.interrupts import Interrupted
from coordinator.probe import somebody_listens
from protocol.errors import ConfigError
from protocol.keys import DialKeys

EVERY_S = 1.0
"""From an answer to the next question, while it is watched."""

Show = Callable[[Load, float], None]
"""Shows the newest report, and for how many seconds another one has been waited for in vain."""


def tell_status(endpoint: str, *, keys: DialKeys | None, as_json: bool, watch: bool, within_s: float) -> None:
    """Print what the coordinator at `endpoint` tells; ConfigError if it does not answer, or no longer, in time."""
    if not somebody_listens(endpoint):
        raise ConfigError(f"nothing listens at {endpoint}: is this cluster up?")
    load = Load()
    with Client(endpoint, keys=keys) as client:
        load.take(_first(client, within_s), time.monotonic())
        if as_json:
            _tell(client, load, _put_json, watch, within_s)
        elif not sys.stdout.isatty():
            _tell(client, load, lambda load, silent_s: _put_page(endpoint, load, silent_s), watch, within_s)
        elif watch:
            with Live(console=Console(highlight=False), auto_refresh=False) as live:
                _tell(
                    client, load, lambda load, s: live.update(_drawn(endpoint, load, s), refresh=True), True, within_s
                )
        else:
            Console(highlight=False).print(_drawn(endpoint, load, 0.0))


def _first(client: Client, within_s: float) -> dict[str, Any]:
    """The first report, from a coordinator that speaks our protocol."""
    deadline = time.monotonic() + within_s
    try:
        client.greet(within_s)
    except SilentError as error:
        raise ConfigError(
            f"{error}: it is busy with one layer or stopped, or this is not its control endpoint"
        ) from None
    report = client.status(deadline - time.monotonic())
    if report is None:
        raise ConfigError(f"the coordinator at {client.endpoint} does not tell its state within {within_s:g} s")
    return report


def _tell(client: Client, load: Load, show: Show, watch: bool, within_s: float) -> None:
    """Show the report that is there; then others, if it is to be watched, until somebody interrupts that."""
    show(load, 0.0)
    try:
        while watch:
            report = client.poll_status(EVERY_S)  # nothing comes, or what was late
            client.ask_status()
            report = client.poll_status(EVERY_S) or report
            load.take(report, time.monotonic())
            silent_s = time.monotonic() - load.taken_at
            if silent_s > within_s:
                raise ConfigError(f"the coordinator at {client.endpoint} has said nothing for {within_s:g} s")
            show(load, 0.0 if report is not None else silent_s)
    except Interrupted:
        return


def _put_json(load: Load, silent_s: float) -> None:
    if not silent_s:
        put(json.dumps(load.report) + "\n")


def _put_page(endpoint: str, load: Load, silent_s: float) -> None:
    if not silent_s:
        put(as_text(_page(endpoint, load)))


def _drawn(endpoint: str, load: Load, silent_s: float) -> Drawn:
    return Drawn(_page(endpoint, load), f"no word of the coordinator for {silent_s:.0f} s" if silent_s else "")


def _page(endpoint: str, load: Load) -> Page:
    assert load.report is not None
    return page(f"{load.report['model'] or 'a model'} at {endpoint}", load)
