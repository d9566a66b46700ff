"""The work of `expertmesh plan` without --simulate: find out what is placed where, and tell it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.cli.expectations import milliseconds, of_token
from coordinator.cli.output import put
from coordinator.cli.plan_of_file import FilePlan
from coordinator.cli.simulating import saying, tried, uses_of
from coordinator.cli.status_page import as_text
from coordinator.cli.status_view import Page, Section
from coordinator.client import Client
from coordinator.config import ClusterConfig
from coordinator.cores import usable_cores
from coordinator.probe import somebody_listens
from coordinator.simulation.scenario import Shape
from protocol.errors import ConfigError
from protocol.keys import DialKeys
from protocol.model import Model

HEADINGS = ("worker", "state", "threads", "experts", "one expert", "a call beside", "all wait for it", "does it help?")
NOTICEABLE = 0.99
"""A worker helps if a token takes less than this part of what it would without."""


def tell_plan_of_file(config: ClusterConfig, profile: Path | None, *, as_json: bool) -> None:
    """Print what is expected of the file's cluster. ExpertmeshError if it has no workers, or its model is of no use."""
    if not any(group.count for group in config.workers):
        raise ConfigError("the cluster file has no workers: [[workers]] with a count of 1 or more is expected")
    with Model.open(config.model) as model, saying() as say:
        shape = Shape.of(model, uses_of(model, profile or config.coordinator.profile))
        say("trying the model here")
        found = FilePlan.of(config, shape, tried(model, config), len(usable_cores())).as_object()
    notes = ["workers are taken to be as fast as this machine, and other machines 0.3 ms away"]
    if config.peers:
        notes.append("peers are left out: nobody has tried their GPUs")
    _put(f"{config.model.name}, before it is up", found, notes, as_json)


def tell_plan_of_cluster(endpoint: str, keys: DialKeys | None, within_s: float, *, as_json: bool) -> None:
    """Print what the coordinator at `endpoint` has placed and expects. ConfigError if it does not answer in time."""
    if not somebody_listens(endpoint):
        raise ConfigError(f"nothing listens at {endpoint}: is this cluster up?")
    deadline = time.monotonic() + within_s
    with Client(endpoint, keys=keys) as client:
        client.greet(within_s)
        report = client.status(deadline - time.monotonic())
    if report is None:
        raise ConfigError(f"the coordinator at {endpoint} does not tell its state within {within_s:g} s")
    workers = [worker for worker in report["workers"] if worker["state"] not in ("gone", "lost")]
    found = {"outlook": report["outlook"], "workers": workers}
    _put(f"{report['model'] or 'a model'} at {endpoint}, placement {report['placement']}", found, [], as_json)


def _put(title: str, found: Mapping[str, Any], notes: list[str], as_json: bool) -> None:
    if as_json:
        put(json.dumps(found) + "\n")
        return
    outlook = found["outlook"]
    facts = ["nobody knows yet how fast these workers are"]
    if outlook is not None:
        facts = of_token(outlook["token_us"], outlook["limits"])
    rows = tuple(_row(worker, outlook) for worker in found["workers"])
    section = Section(title="", headings=HEADINGS, rows=rows, words=2)
    put(as_text(Page(title=title, facts=(*facts, *notes), remarks=(), sections=(section,))))


def _row(worker: Mapping[str, Any], outlook: Mapping[str, Any] | None) -> tuple[str, ...]:
    pace = worker["pace"]
    paces = ("", "") if pace is None else tuple(milliseconds(pace[part]) for part in ("entry_us", "call_us"))
    last = "" if worker["last_us"] is None else milliseconds(worker["last_us"])
    numbers = (str(worker["threads"]), str(worker["experts"]))
    return (worker["name"], worker["state"], *numbers, *paces, last, _helps(worker, outlook))


def _helps(worker: Mapping[str, Any], outlook: Mapping[str, Any] | None) -> str:
    if "left_out" in worker:
        return f"no: {worker['left_out']}"
    if "without_us" not in worker or outlook is None:
        return "yes" if worker["experts"] else "not yet"
    token_us, without_us = outlook["token_us"], worker["without_us"]
    helps = token_us < NOTICEABLE * without_us
    return (
        f"{'yes' if helps else 'hardly'}: {milliseconds(token_us)} a token with it, {milliseconds(without_us)} without"
    )
