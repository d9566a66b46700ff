"""`expertmesh plan`: what a cluster is expected to do."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import click
from click.core import ParameterSource

from coordinator.cli.holding import KEYS
from coordinator.cli.numbers import Fraction, Whole
from coordinator.cli.paths import CONFIG, Existing
from coordinator.cluster_file import read_config
from coordinator.config import MAX_ALL_WORKERS
from coordinator.interrupts import Interrupts
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError
from protocol.keys import DialKeys, dial_keys
from protocol.messages import MAX_ROWS

KINDS = ("killed", "frozen", "vanished", "joins")
"""Of mishaps."""
OF_ENDPOINTS, OF_FILES = ("keys", "as_json"), ("profile", "as_json")
"""Options for a cluster that is up, and for the one of a file; all but `keys` are for one that is simulated."""
MAX_RATE = 3600.0
WITHIN_S = 10.0
"""Time for a coordinator to answer: it does between two layers."""


def _counts(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers of workers. ConfigError names what was found and what was expected."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and int(part) <= MAX_ALL_WORKERS for part in parts):
        expected = f"numbers from 0 to {MAX_ALL_WORKERS} with commas between"
        raise ConfigError(f"--workers is {value or 'empty'}, expected {expected}")
    return tuple(int(part) for part in parts)


def _rates(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, float]:
    """An hour's, by kind. ConfigError names what was found and what was expected."""
    found: dict[str, float] = {}
    for part in value.split(","):
        kind, _, text = part.strip().partition("=")
        try:
            rate = float(text)
        except ValueError:
            rate = -1.0
        if kind not in KINDS or not 0 <= rate <= MAX_RATE:
            expected = f"KIND=N with commas between, KIND one of {', '.join(KINDS)}, N from 0 to {MAX_RATE:g}"
            raise ConfigError(f"--rates is {value or 'empty'}, expected {expected}")
        if kind in found:
            raise ConfigError(f"--rates names {kind} twice")
        found[kind] = rate
    return found


@click.command("plan")
@click.argument("cluster", metavar="CONFIG|ENDPOINT")
@click.option("--simulate", is_flag=True, help="Simulate the cluster of CONFIG.")
@click.option(
    "--workers",
    "counts",
    metavar="N,N",
    callback=_counts,
    help="So many workers like those of CONFIG, each on a machine of its own; several numbers, 0 too, are compared.",
)
@click.option("--conversations", type=Whole(1, MAX_ROWS), default=1, show_default=True, help="Answered at once.")
@click.option("--tokens", type=Whole(1, 10_000), default=32, show_default=True, help="Simulate so many of each.")
@click.option(
    "--round-trip-ms",
    type=Fraction(0, 10_000),
    default=0.3,
    show_default=True,
    help="Of the network between machines, for a small message.",
)
@click.option(
    "--mbit", type=Fraction(0.1, 1e6), default=1000, show_default=True, help="Of each machine's line, either way."
)
@click.option(
    "--variation",
    type=Fraction(0, 100),
    default=10,
    show_default=True,
    help="How much workers' speeds and lines differ, and those of one from call to call, in percent.",
)
@click.option("--profile", type=Existing(folder=False), metavar="FILE", help="Route rows as was counted in FILE.")
@click.option(
    "--mishaps",
    type=Whole(0, 1000),
    default=0,
    metavar="TIMES",
    help="Also simulate so many mishaps of each kind, and tell how long answers pause.",
)
@click.option(
    "--hours",
    type=Fraction(0, 1000),
    default=0,
    help="Also simulate so many hours in which workers have mishaps at random, as --rates says.",
)
@click.option(
    "--rates",
    callback=_rates,
    default="killed=1,frozen=1,vanished=1",
    show_default=True,
    metavar="KIND=N,KIND=N",
    help="How often each worker is killed, frozen or vanished in an hour, and how many more there are: joins=N.",
)
@click.option(
    "--back-s",
    type=Fraction(0.001, 86400),
    default=30,
    show_default=True,
    help="Seconds until such a mishap is over, on average.",
)
@click.option("--seed", type=Whole(0, 2**31 - 1), default=0, show_default=True, help="Of all chance.")
@KEYS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def command(
    interrupts: Interrupts,
    /,
    cluster: str,
    simulate: bool,
    counts: tuple[int, ...] | None,
    conversations: int,
    tokens: int,
    round_trip_ms: float,
    mbit: float,
    variation: float,
    profile: Path | None,
    mishaps: int,
    hours: float,
    rates: dict[str, float],
    back_s: float,
    seed: int,
    keys: Path | None,
    as_json: bool,
) -> None:
    """Tell who holds which experts, how long a token is expected to take, what limits that, and who helps.

    Of a cluster that is up at ENDPOINT, or of the one of the file CONFIG before it is up. Then the model's dense half
    and some experts are tried here for a few seconds, and workers are taken to be as fast as this machine. With
    --simulate each step of such a cluster is played through; without --workers they share this machine's cores.
    """
    if "://" in cluster:
        if simulate:
            raise ConfigError(f"--simulate takes a cluster file, found {cluster}")
        _refuse_all_but(OF_ENDPOINTS, "with a cluster file")
        where = check_endpoint(cluster, dial=True, keyed=keys is not None)
        _tell_of_endpoint(interrupts, where, dial_keys(keys), as_json)
        return
    if keys is not None:
        raise ConfigError(f"--keys is of use with an endpoint only, found {cluster}")
    config = read_config(_path(cluster))
    if not simulate:
        _refuse_all_but(OF_FILES, "with --simulate")
        with interrupts.held():
            from coordinator.cli.telling_plans import tell_plan_of_file

        tell_plan_of_file(config, profile, as_json=as_json)
        return
    with interrupts.held():
        from coordinator.cli.simulating import Asked, tell_simulation

    asked = Asked(
        counts=counts,
        conversations=conversations,
        tokens=tokens,
        round_trip_s=round_trip_ms / 1000,
        bytes_per_s=mbit * 1e6 / 8,
        variation=variation / 100,
        profile=profile,
        mishaps=mishaps,
        hours=hours,
        rates=rates | {"back_s": back_s},
        seed=seed,
    )
    tell_simulation(config, asked, as_json=as_json)


def _refuse_all_but(useful: Collection[str], where: str) -> None:
    """ConfigError for an option that is given, and would be of no use."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and isinstance(option, click.Option) and option.name not in useful:
            raise ConfigError(f"{option.opts[0]} is of use {where} only")


def _path(text: str) -> Path:
    ctx = click.get_current_context()
    return Path(CONFIG.convert(text, ctx.command.params[0], ctx))


def _tell_of_endpoint(interrupts: Interrupts, endpoint: str, keys: DialKeys | None, as_json: bool) -> None:
    with interrupts.held():
        from coordinator.cli.telling_plans import tell_plan_of_cluster

    tell_plan_of_cluster(endpoint, keys, WITHIN_S, as_json=as_json)
