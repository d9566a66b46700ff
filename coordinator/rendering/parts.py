"""What every form is made of: the commands of a cluster's processes, as its launcher would run them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from coordinator.config import COORDINATOR, LOOKAHEAD, MAX_ORPHAN_S, OF_A_CACHE, WEIGHTS, ClusterConfig
from coordinator.launch_plan import LaunchPlan, ProcessPlan, resolve
from coordinator.lookahead_choice import LookaheadChoice
from protocol.errors import ConfigError

COME_S = 10
"""How long a coordinator waits for all whom it expects, whenever it is started."""
UNKNOWN_MEMORY = "lookahead is left to whoever states it: how much memory there is where it runs is not known here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Processes that are alike: the coordinator, what gives weights beside it, a group of workers, what gives from
    their cache, a peer, or the lookahead process."""

    name: str
    """Of all of them; the processes of a group have its number behind it."""
    kind: str
    """"coordinator", "weights", "worker", "giver", "peer" or "lookahead"."""
    count: int
    threads: int
    gpus: int
    command: tuple[str, ...]
    """Of the first of them."""

    @property
    def cache(self) -> str | None:
        """The folder for weights that they fetch, or give from; None if they have a model."""
        return option_of(self.command, "--cache")


def cluster_name(config: Path) -> str:
    """What the forms call the cluster: the file's name in letters, digits and dashes. ConfigError if none are left."""
    name = dns_name(config.stem)
    if not name:
        raise ConfigError(f"{config}: a file name with letters or digits is expected: supervisors call it by that")
    return name


def dns_name(text: str) -> str:
    """In the letters that names of machines may have."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")


def parts(config: ClusterConfig, *, python: str, lookahead: LookaheadChoice | None = None) -> list[Part]:
    """The parts of `config` wherever they run, the coordinator first, then what gives weights beside it.

    `python` is the interpreter there.

    Without a `lookahead` choice there is such a process only if the file says so.
    """
    wanted = config.lookahead.enabled == "on" and any(group.count for group in config.workers)
    choice = lookahead or LookaheadChoice(on=wanted, reason=UNKNOWN_MEMORY)
    by_name = {plan.name: plan for plan in supervised(config, python=python, lookahead=choice).processes}
    own_gpu = int(config.coordinator.device != "cpu")
    made = [_part(by_name, COORDINATOR, "coordinator", 1, own_gpu)]
    made += [_part(by_name, WEIGHTS, "weights", 1, 0) for _ in range(config.gives_weights)]
    groups = [group for group in config.workers if group.count]
    made += [_part(by_name, f"{group.name}-0", "worker", group.count, 0, group.name) for group in groups]
    made += [_part(by_name, f"{group.name}{OF_A_CACHE}", "giver", 1, 0) for group in groups if group.give]
    made += [_part(by_name, peer.name, "peer", 1, 1) for peer in config.peers]
    return made + [_part(by_name, LOOKAHEAD, "lookahead", 1, 0) for _ in range(choice.on)]


def supervised(config: ClusterConfig, *, python: str, lookahead: LookaheadChoice) -> LaunchPlan:
    """What the launcher would start, as it is to be under who starts each process by itself, whenever that may be.

    A coordinator does not know whether it is the first: it goes on with those who have come. All others wait for it.
    """
    waiting = replace(config.coordinator, orphan_s=config.coordinator.orphan_s or MAX_ORPHAN_S)
    plan = resolve(replace(config, coordinator=waiting), python=python, cores=(), lookahead=lookahead)
    coordinator, *others = plan.processes
    first = replace(coordinator, command=(*coordinator.command, "--resume", str(COME_S)))
    return replace(plan, processes=(first, *others))


def everywhere(config: ClusterConfig) -> ClusterConfig:
    """The same cluster where a supervisor decides which machine runs what: `host` is of no use to it."""
    return replace(
        config,
        workers=tuple(replace(group, host=None) for group in config.workers),
        peers=tuple(replace(peer, host=None) for peer in config.peers),
    )


def without_givers(config: ClusterConfig, where: str) -> None:
    """ConfigError if a group gives what is in its cache: `where` that would run, nobody else can dial it."""
    for group in config.workers:
        if group.give and group.count:
            raise ConfigError(
                f"give of workers {group.name} is {group.give}: {where} have no loopback interface in common, so "
                "nobody could fetch from there; leave it out"
            )


def with_models_in(config: ClusterConfig, folder: PurePosixPath) -> ClusterConfig:
    """The same cluster whose models lie in another folder, under the same names."""

    def moved(path: Path | None) -> Path | None:
        return None if path is None else Path(folder / path.name)

    return replace(
        config,
        model=Path(folder / config.model.name),
        workers=tuple(replace(group, model_path=moved(group.model_path)) for group in config.workers),
        peers=tuple(replace(peer, model_path=moved(peer.model_path)) for peer in config.peers),
    )


def with_option(command: Sequence[str], option: str, value: str | None) -> tuple[str, ...]:
    """The command with another value of an option that it has, or without it if that is None."""
    if option not in command:
        return tuple(command)
    at = command.index(option)
    return (*command[:at], *(() if value is None else (option, value)), *command[at + 2 :])


def option_of(command: Sequence[str], option: str) -> str | None:
    """The value of an option; None if the command does not have it."""
    return command[command.index(option) + 1] if option in command else None


def _part(plans: dict[str, ProcessPlan], first: str, kind: str, count: int, gpus: int, name: str = "") -> Part:
    plan = plans[first]
    return Part(
        name=name or first, kind=kind, count=count, threads=max(1, plan.threads), gpus=gpus, command=plan.command
    )
