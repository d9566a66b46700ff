"""What `expertmesh status` tells of a coordinator's report, as values: sentences, and tables of words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.cli.headline import headline
from coordinator.cli.load import Load, beat_age, busy, memory, state
from coordinator.cli.status_remarks import remarks
from coordinator.cli.tier_figures import Tiers
from coordinator.cli.wording import percent
from protocol.wording import counted, size

Report = dict[str, Any]
Column = tuple[str, Callable[[Tiers], str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table. The first column has names; as many as `words` are words, the others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that is told."""

    title: str
    facts: tuple[str, ...]
    """The cluster as a whole."""
    remarks: tuple[str, ...]
    """What makes it slow, or is not as it should be."""
    sections: tuple[Section, ...]
    """Those that have rows."""


def page(where: str, load: Load) -> Page:
    """What is told of the newest report, which must be there; `where` is the model and the endpoint."""
    report = load.report
    assert report is not None
    workers = report["workers"]
    since_start = [(worker["name"], tiers) for worker in workers if (tiers := Tiers.of(worker)) is not None]
    lately = [(worker["name"], tiers) for worker in workers if (tiers := load.lately(worker)) is not None]
    sections = (
        _members(workers, load),
        _section("where experts' bytes came from, since each process began", READS, since_start),
        _section("lately", READS, lately),
        _section("copies in memory", COPIES, [one for one in since_start if one[1].any(*COPIED)]),
        _section("weights fetched", FETCHES, [one for one in since_start if one[1].any(*FETCHED)]),
        _section("experts hinted at", HINTS, [one for one in since_start if one[1].any(*HINTED)]),
        _lookahead(report),
    )
    return Page(
        title=where,
        facts=tuple(headline(report)),
        remarks=tuple(remarks(report, load)),
        sections=tuple(section for section in sections if section.rows),
    )


def _members(workers: Iterable[Report], load: Load) -> Section:
    headings = ("member", "role", "state", "threads", "experts", "calls", "busy", "beat", "memory")
    return Section(title="", headings=headings, rows=tuple(_member(worker, load) for worker in workers), words=3)


def _member(worker: Report, load: Load) -> tuple[str, ...]:
    numbers = (str(worker[key]) for key in ("threads", "experts", "calls"))
    return (
        *(worker[key] for key in ("name", "role")),
        state(worker),
        *numbers,
        busy(worker, load) or f"{worker['busy_s']:.1f} s",
        beat_age(worker),
        memory(worker),
    )


def _section(title: str, columns: Sequence[Column], members: Iterable[tuple[str, Tiers]]) -> Section:
    rows = tuple((name, *(cell(tiers) for _, cell in columns)) for name, tiers in members)
    headings = ("member", *(heading for heading, _ in columns))
    return Section(title=title, headings=headings, rows=rows, words=2 if columns is READS else 1)


def _lookahead(report: Report) -> Section:
    rows = tuple(
        (
            one["name"],
            one["host"],
            one["state"],
            str(one["inputs"]),
            str(one["hints"]),
            f"{one['busy_s']:.1f} s",
            beat_age(one),
            memory(one),
            "" if one["dropped"] is None else str(one["dropped"]),
        )
        for one in report["lookahead"]
    )
    headings = ("process", "host", "state", "inputs", "hints", "busy", "beat", "memory", "dropped")
    inputs = report["inputs"]
    title = (
        f"lookahead: {counted(inputs['published'], 'layer input')} published, {inputs['refused']} missed by somebody"
    )
    return Section(title=title, headings=headings, rows=rows, words=3)


def _count(name: str) -> Callable[[Tiers], str]:
    return lambda tiers: str(tiers[name]) if name in tiers.counts else ""


def _bytes(name: str) -> Callable[[Tiers], str]:
    return lambda tiers: size(tiers[name]) if tiers[name] else ""


def _seconds(name: str) -> Callable[[Tiers], str]:
    """Of a counter of microseconds."""
    return lambda tiers: f"{tiers[name] * 1e-6:.2f} s" if tiers[name] else ""


def _part(name: str, share: Callable[[Tiers], float | None]) -> Callable[[Tiers], str]:
    """A number, and which part that is."""

    def cell(tiers: Tiers) -> str:
        part = share(tiers)
        return _count(name)(tiers) + (f" ({percent(part)})" if part else "")

    return cell


def _hits(name: str) -> Callable[[Tiers], str]:
    """A number of experts, and which part that is of all that were looked for."""
    return _part(name, lambda tiers: tiers.share(name))


def _rate(per_s: float | None) -> str:
    return f"{size(int(per_s))}/s" if per_s else ""


def _reading(tiers: Tiers) -> str:
    share = tiers.reading_share
    return "" if share is None or "file_reads" not in tiers.counts else percent(share)


READS: tuple[Column, ...] = (
    ("source", lambda tiers: tiers.source),
    ("copies", _hits("copy_hits")),
    ("page cache", _hits("cache_hits")),
    ("files", _hits("file_reads")),
    ("read", _bytes("file_read_bytes")),
    ("in", _seconds("file_read_us")),
    ("rate", lambda tiers: _rate(tiers.read_rate)),
    ("time reading", _reading),
)
COPIES: tuple[Column, ...] = (
    ("experts", _count("copied_experts")),
    ("bytes", _bytes("copied_bytes")),
    ("locked", _bytes("locked_bytes")),
    ("loaded", _bytes("loaded_bytes")),
    ("in", _seconds("load_us")),
    ("rate", lambda tiers: _rate(tiers.load_rate)),
    ("shed", _bytes("shed_bytes")),
    ("fallbacks", _count("fallbacks")),
)
COPIED = ("copied_bytes", "locked_bytes", "loaded_bytes", "shed_bytes", "fallbacks")
FETCHES: tuple[Column, ...] = (
    ("fetched", _bytes("fetched_bytes")),
    ("from caches", _bytes("fetched_from_caches")),
    ("in", _seconds("fetch_us")),
    ("rate", lambda tiers: _rate(tiers.fetch_rate)),
    ("to come", _bytes("fetch_left_bytes")),
    ("damaged", _count("fetched_damaged")),
)
FETCHED = ("fetched_bytes", "fetch_left_bytes", "fetched_damaged")
HINTS: tuple[Column, ...] = (
    ("hinted", _count("hints_hinted")),
    ("useful", _part("hints_useful", lambda tiers: tiers.useful_share)),
    *((name, _count(f"hints_{name}")) for name in ("late", "wasted", "harmful", "gated", "stale", "missed")),
    ("layers off", _count("hints_off")),
)
HINTED = ("hints_hinted", "hints_gated", "hints_stale")
