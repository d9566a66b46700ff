"""The work of `expertmesh plan --simulate`: try, simulate, tell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from coordinator.cli.output import put
from coordinator.cli.simulation_view import Found, as_object, as_text
from coordinator.config import ClusterConfig
from coordinator.cores import usable_cores
from coordinator.own_costs import own_costs
from coordinator.profile import F64, Profile
from coordinator.profile_file import read_profile
from coordinator.simulation.decoding import MISHAPS, Mishap, decode, pauses
from coordinator.simulation.living import live
from coordinator.simulation.outcome import Pauses
from coordinator.simulation.random_mishaps import Rates
from coordinator.simulation.scenario import Scenario, Shape
from coordinator.simulation.stated import Network, Tried, scaled, stated
from protocol.errors import ConfigError
from protocol.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says."""

    counts: tuple[int, ...] | None
    """Of workers, each on a machine of its own; None: those of the file, on this one."""
    conversations: int
    tokens: int
    round_trip_s: float
    bytes_per_s: float
    variation: float
    profile: Path | None
    mishaps: int
    hours: float
    rates: Mapping[str, float]
    """Fields of `Rates`."""
    seed: int


def tell_simulation(config: ClusterConfig, asked: Asked, *, as_json: bool) -> None:
    """Print what is found. ExpertmeshError if the cluster cannot be simulated."""
    if not any(group.count for group in config.workers):
        raise ConfigError("the cluster file has no workers: [[workers]] with a count of 1 or more is expected")
    with Model.open(config.model) as model, saying() as say, _silent_log():
        uses = uses_of(model, asked.profile or config.coordinator.profile)
        shape = Shape.of(model, uses)
        say("trying the model here")
        trial = tried(model, config)
        network = (
            None if asked.counts is None else Network(round_trip_s=asked.round_trip_s, bytes_per_s=asked.bytes_per_s)
        )
        found = Found(
            model=config.model.name,
            shape=shape,
            tried=trial,
            network=network,
            variation=asked.variation,
            peers=len(config.peers),
        )
        for count in asked.counts or (None,):
            scenario = stated(
                config if count is None else replace(config, workers=scaled(config.workers, count)),
                shape,
                trial,
                network=network,
                cores=len(usable_cores()),
                variation=asked.variation,
                rows=asked.conversations,
                seed=asked.seed,
            )
            say(f"simulating {scenario.workers} workers")
            found.decoded.append(decode(scenario, asked.tokens))
            if asked.mishaps and scenario.workers:
                found.pauses[scenario.workers] = {kind: _pauses(scenario, kind, asked.mishaps, say) for kind in MISHAPS}
            if asked.hours and scenario.workers:
                say(f"simulating {scenario.workers} workers for {asked.hours:g} hours")
                found.lived.append(live(scenario, Rates(**asked.rates), asked.hours))
    put((as_object if as_json else as_text)(found))


def tried(model: Model, config: ClusterConfig) -> Tried:
    """What the coordinator's own work and an expert take here, with all numbers of threads that the file has."""
    own = own_costs(model, config.coordinator.threads, kv=config.coordinator.kv)
    entry_s = {config.coordinator.threads: own.entry_s}
    for threads in {group.threads for group in config.workers if group.count} - entry_s.keys():
        entry_s[threads] = own_costs(model, threads, kv=config.coordinator.kv).entry_s
    return Tried(own=own, entry_s=entry_s)


def uses_of(model: Model, path: Path | None) -> F64 | None:
    """What a profile has counted; None if there is none, or nothing in it."""
    if path is None or not path.exists():
        return None
    profile = read_profile(path, Profile.empty(model))
    return profile.counts if profile.rows else None


def _pauses(scenario: Scenario, kind: Mishap, times: int, say: Callable[[str], None]) -> Pauses:
    say(f"simulating {scenario.workers} workers, of which one is {kind}" if kind != "joins" else "a worker joins")
    return pauses(scenario, kind, times)


@contextmanager
def saying() -> Iterator[Callable[[str], None]]:
    """A line on a terminal that says what is being done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as status:
        yield lambda text: status.update(text)


@contextmanager
def _silent_log() -> Iterator[None]:
    """Simulated workers die by the dozen, which is nobody's warning."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
