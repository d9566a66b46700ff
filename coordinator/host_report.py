"""What a machine answered before a launch, judged: pure, so that its tests need no machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.config import PeerConfig, WorkerGroup
from coordinator.hosts import NOT_REACHED, Host
from protocol.endpoints import is_local
from protocol.gib import GIB

COPIES_ALL = ("arena", "shared")
"""Sources that have all experts in memory."""
NOT_FOUND = (126, 127)
"""Exit codes of a shell that finds no program, or none that it may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One group of workers, or one peer, of a machine."""

    name: str
    model: Path | None
    """None if it fetches its weights."""
    count: int
    ram_gib: float | None
    source: str
    cache: Path | None = None
    """The folder into which it fetches them then."""
    give: str = ""
    """Where a process beside it is to listen, if one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One machine, one `expertmesh` there, and what is to run under it."""

    host: Host | None
    """None is this machine."""
    command: tuple[str, ...]
    wanted: tuple[Wanted, ...]

    @classmethod
    def of(
        cls, host: Host | None, command: tuple[str, ...], parts: Sequence[WorkerGroup | PeerConfig], model: Path
    ) -> Asked:
        """`model` is the coordinator's, which they look for at the same path if they are not told another."""
        return cls(host=host, command=command, wanted=tuple(_wanted(part, model) for part in parts))

    @property
    def models(self) -> tuple[Path, ...]:
        """The paths there, each once."""
        return tuple(dict.fromkeys(one.model for one in self.wanted if one.model is not None))

    @property
    def caches(self) -> tuple[Path, ...]:
        """The folders there, each once."""
        return tuple(dict.fromkeys(one.cache for one in self.wanted if one.cache is not None))

    def __str__(self) -> str:
        names = ", ".join(one.name for one in self.wanted)
        return names if self.host is None else f"{names} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is true of this machine, and so has to be there."""

    version: str
    protocol: int
    model: Mapping[str, Any]
    """Of the coordinator's model: `fingerprint`, `expert_bytes` and `experts` of a layer, or `error`."""
    word: str
    """What the coordinator's ports say just now."""

    def local_problems(self, path: Path, told: Mapping[str, Any], asked: Asked) -> Iterator[str]:
        """With the coordinator's model at `path`, others of this machine, and what they are to take of it."""
        for name, found in told["models"].items():
            if "error" in found:
                yield found["error"]
            elif "error" not in self.model and found["fingerprint"] != self.model["fingerprint"]:
                yield f"{name} is not the model of {path}"
        yield from (f"{asked}: {reason}" for reason in _room(asked, told, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """How a question ended."""

    code: int = 0
    output: str = ""
    errors: str = ""
    silent_s: float | None = None
    """Not None: there was no answer for so long."""

    def told(self) -> dict[str, Any] | None:
        """The answer, if that is what came: the last line of the output, whatever a login shell wrote before."""
        try:
            told = json.loads((self.output.strip().splitlines() or [""])[-1])
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None

    def hears(self, word: str) -> bool:
        """Whether the coordinator's ports can be dialled from there."""
        heard = _map((self.told() or {}).get("heard"))
        return bool(heard) and all(_map(one).get("word") == word for one in heard.values())

    @property
    def last_words(self) -> str:
        """What was said last on stderr, without the word error."""
        return (self.errors.strip().splitlines() or ["nothing was said"])[-1].removeprefix("error: ")


def problems(asked: Asked, report: HostReport, expected: Expected) -> Iterator[str]:
    """Everything that keeps the processes from running there, one sentence each."""
    for reason in _problems(asked, report, expected):
        yield f"{asked}: {reason}"


def _problems(asked: Asked, report: HostReport, expected: Expected) -> Iterator[str]:
    command = shlex.join(asked.command)
    if report.silent_s is not None:
        yield f"no answer within {report.silent_s:g} s"
        return
    if report.code == NOT_REACHED:
        yield f"it cannot be reached: {report.last_words}"
        return
    if report.code in NOT_FOUND:
        yield f"there is no {command}: {report.last_words}"
        return
    told = report.told()
    if report.code or told is None:
        words = report.last_words if report.code else "no report was found in its output"
        yield f"`{command} hosted check` exited with code {report.code}: {words}"
        return
    yield from differences(told, asked.models, command, expected)
    yield from _room(asked, told, expected)
    yield from _ports(_map(told.get("heard")), expected)
    yield from _own_ports(asked, _map(told.get("taken")))


def differences(told: Mapping[str, Any], paths: Iterable[Path], command: str, expected: Expected) -> Iterator[str]:
    """Of what runs there, as `command`, and of the models at those paths there."""
    for field, wanted in (("version", expected.version), ("protocol", expected.protocol)):
        if told.get(field) != wanted:
            yield f"{field} of {command} is {told.get(field)}, expected {wanted}"
    models = _map(told.get("models"))
    for path in paths:
        found = _map(models.get(str(path)))
        if "error" in found:
            yield f"{found['error']}"
        elif (mine := expected.model.get("fingerprint")) is not None and found.get("fingerprint") != mine:
            yield f"{path} is another model: its fingerprint is {found.get('fingerprint')}, expected {mine}"


def _room(asked: Asked, told: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    """In memory and on disks."""
    yield from _memory(asked, told)
    yield from _caches(asked, _map(told.get("caches")), expected)


def _caches(asked: Asked, caches: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    """One that has room for few experts is asked for no more; one that has room for none is of no use."""
    least = expected.model.get("expert_bytes", 0) // max(1, expected.model.get("experts", 1))
    for path in asked.caches:
        found = _map(caches.get(str(path)))
        room = found.get("room_bytes")
        if "error" in found:
            yield f"{found['error']}"
        elif type(room) is int and room < least:
            yield (
                f"cache {path} may take {room / GIB:.4g} GiB of its disk, and one expert of each layer takes "
                f"{least / GIB:.4g} GiB"
            )


def _memory(asked: Asked, told: Mapping[str, Any]) -> Iterator[str]:
    """What copies and arenas take for certain; the rest is the processes' to plan, who see what there is."""
    available = told.get("available_bytes")
    if type(available) is not int:
        return
    needed = 0
    for one in asked.wanted:
        experts = _map(_map(told.get("models")).get(str(one.model))).get("expert_bytes")
        if one.ram_gib is not None:
            needed += int(one.ram_gib * GIB) * one.count
        elif one.source in COPIES_ALL and type(experts) is int:
            needed += experts * (one.count if one.source == "arena" else 1)
    if needed > available:
        yield f"copies of experts take {needed / GIB:.4g} GiB of memory, {available / GIB:.4g} GiB are available"


def _ports(heard: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    """A loopback interface that nobody listens at there is no problem: a tunnel leads from there to here."""
    for endpoint, one in heard.items():
        found = _map(one)
        if "word" in found and found["word"] != expected.word:
            yield f"{endpoint}, which is to lead to the coordinator, is something else there"
        elif "error" in found and not is_local(endpoint):
            dialled = found.get("dialled", endpoint)
            yield f"{dialled}, where the coordinator is to listen, cannot be dialled from there: {found['error']}"


def _own_ports(asked: Asked, taken: Mapping[str, Any]) -> Iterator[str]:
    for one in asked.wanted:
        if one.give and (error := taken.get(one.give)):
            yield f"nobody can listen at {one.give}, where weights are to be given: {error}"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _wanted(part: WorkerGroup | PeerConfig, model: Path) -> Wanted:
    path: Path | None = part.model_path or model
    if isinstance(part, PeerConfig):
        return Wanted(name=part.name, model=path, count=1, ram_gib=None, source="vram")
    return Wanted(
        name=part.name,
        model=None if part.cache is not None else path,
        count=part.count,
        ram_gib=part.ram_gib,
        source=part.source,
        cache=part.cache,
        give=part.give,
    )


def is_looked_at(group: WorkerGroup) -> bool:
    """Whether a group of this machine takes so much of it that this is looked at before anything starts."""
    takes = group.ram_gib is not None or group.source in COPIES_ALL or group.cache is not None
    return takes and group.host is None and group.count > 0
