"""The report of a full house, everybody in it as talkative as allowed, still fits a message."""

from __future__ import annotations

import itertools
from typing import Any

from message_examples import beat, hello

from coordinator.hello import MAX_NAME, Terms
from coordinator.members import MAX_GONE, MAX_MEMBERS, Members
from coordinator.planner import Planner
from coordinator.report import SHOWN_GONE, SHOWN_GONE_S, mesh_report
from coordinator.tallies import Counters, Tally
from expert_worker.hints import HintBook
from expert_worker.sources.source import Counters as TierCounters
from expert_worker.supply import Supply
from protocol.codec import MAX_HEADER_BYTES, encode
from protocol.expert_sources import BEAT_SOURCES, SOURCES, TIER_COUNTS
from protocol.fields import MAX_ITEMS
from protocol.messages import MAX_REASON, MAX_THREADS, AssignFailed, Finished, OpenWork, Status, Stopped
from protocol.stock import Stock

MOST = 2**63 - 1
WIDEST = "\N{BRAIN}"  # four bytes, and printable
TERMS = Terms(
    session="5e55",
    fingerprint="0123456789abcdef",
    geometry={"layers": 1, "dense_layers": 0, "experts": 1, "width": 64, "expert_width": 32},
    work="ipc://@work",
)
STOCK = Stock(slot_bytes=(1,), experts=1)
PLANNER = Planner(stock=STOCK, own=STOCK.nothing())


def _join(members: Members, number: int) -> bytes:
    """A worker with the longest texts and largest numbers; its control peer."""
    peer, name = f"peer-{number}".encode(), f"{number:04}".ljust(MAX_NAME, WIDEST)
    texts = {"name": name, "incarnation": WIDEST * MAX_NAME, "host": WIDEST * MAX_NAME, "isa": WIDEST * MAX_NAME}
    geometry = dict(TERMS.geometry)
    claim = hello(pid=MOST, threads=MAX_THREADS, fingerprint=TERMS.fingerprint, geometry=geometry, **texts)
    members.hello(peer, claim)
    member = members.of_control(peer)
    assert member is not None
    members.open_work(b"work-" + peer, OpenWork(token=member.token))
    claims = {"dropped": MOST, "resident_bytes": MOST, "calls": MOST, "busy_us": MOST, "source": WIDEST * MAX_NAME}
    counts = dict.fromkeys(
        (*TIER_COUNTS, *(f"made-up-{number}" for number in range(MAX_ITEMS - len(TIER_COUNTS)))), MOST
    )
    members.from_worker(peer, beat(token=member.token, tiers=counts, **claims), 0.0)
    assert members.assignment.target is not None
    members.from_worker(
        peer, AssignFailed(placement=members.assignment.target.version, reason=WIDEST * 2 * MAX_REASON), 0.0
    )
    assert member.failed
    return peer


def test_the_longest_report_fits_a_header() -> None:
    numbers = itertools.count()
    members = Members(TERMS, PLANNER, expected=1, fresh_token=lambda: str(next(numbers)))
    for number in range(MAX_GONE):
        members.from_worker(_join(members, number), Stopped(), 0.0)
    for number in range(MAX_GONE, MAX_GONE + MAX_MEMBERS):
        _join(members, number)
    counters = Counters(
        local_entries=MOST, device_entries=MOST, replans=MOST, hedges=MOST, late_replies=MOST, dropped=MOST
    )
    for name in {*(member.name for member in members), *members.gone}:
        counters.workers[name] = Tally(calls=MOST, entries=MOST, busy_us=MOST, wait_us=MOST)
    report = mesh_report(members, counters, set(), SHOWN_GONE_S)
    assert len(report["workers"]) == SHOWN_GONE + MAX_MEMBERS
    assert len(encode(Status(report=report))[0]) < 0.95 * MAX_HEADER_BYTES  # what else the service tells is short
    encode(Finished(request=WIDEST * MAX_NAME, reason="length", prompt_us=MOST, decode_us=MOST, report=report))


def report_of(**claims: Any) -> dict[str, Any]:
    """Of one worker with such a beat."""
    members = Members(TERMS, PLANNER, expected=1, fresh_token=lambda: "token")
    _join(members, 0)
    (member,) = members
    members.from_worker(member.control, beat(token=member.token, **claims), 0.0)
    (row,) = mesh_report(members, Counters(), set(), 0.0)["workers"]
    return dict(row)


def test_all_that_tiers_count_is_passed_on_by_name_and_nothing_else() -> None:
    counted = (
        TierCounters().as_dict()
        | Supply().counts
        | {f"hints_{name}": count for name, count in HintBook().stats().items()}
    )
    assert sorted(counted) == sorted(TIER_COUNTS)
    claimed = {name: number for number, name in enumerate(TIER_COUNTS)}
    assert report_of(tiers=claimed | {"made_up": 5})["tiers"] == claimed
    assert report_of(tiers={"file_reads": 3, "": 1})["tiers"] == {"file_reads": 3}


def test_what_a_beat_claims_is_no_less_than_nothing() -> None:
    row = report_of(tiers={"file_reads": -3}, calls=-1, busy_us=-5, resident_bytes=-7, dropped=-9)
    assert row["tiers"] == {"file_reads": 0}
    assert row["since_start"] == {"calls": 0, "busy_s": 0.0}
    assert (row["resident_bytes"], row["dropped"]) == (0, 0)


def test_a_source_is_one_of_those_that_there_are() -> None:
    assert set(SOURCES) - {"auto"} < set(BEAT_SOURCES)
    for claimed, told in [("copies", "copies"), ("vram", "vram"), ("auto", "unknown"), ("\x1b[31m" * 99, "unknown")]:
        assert report_of(source=claimed)["source"] == told


def test_who_left_is_told_of_for_a_while_and_no_more_than_a_few() -> None:
    numbers = itertools.count()
    members = Members(TERMS, PLANNER, expected=1, fresh_token=lambda: str(next(numbers)))
    for number in range(SHOWN_GONE + 4):
        members.from_worker(_join(members, number), Stopped(), 0.0)

    def told(now: float) -> list[int]:
        return [int(worker["name"][:4]) for worker in mesh_report(members, Counters(), set(), now)["workers"]]

    assert told(SHOWN_GONE_S) == list(range(4, SHOWN_GONE + 4))
    assert told(SHOWN_GONE_S + 1) == []


def test_whoever_is_there_or_gone_is_told_in_words_that_travel() -> None:
    members = Members(TERMS, PLANNER, expected=0, fresh_token=lambda: "token")
    for role in ("worker", "lookahead"):
        for lives in (True, False):
            name = f"{role}-{lives}"
            mark, geometry = TERMS.fingerprint, dict(TERMS.geometry)
            members.hello(name.encode(), hello(role=role, name=name, fingerprint=mark, geometry=geometry))
            if not lives:
                members.from_worker(name.encode(), Stopped(), 0.0)
    report = mesh_report(members, Counters(), (), 0.0)
    encode(Status(report=report))
    states = {row["name"]: row["state"] for kind in ("workers", "lookahead") for row in report[kind]}
    assert states == {
        "worker-True": "hello",
        "worker-False": "gone",
        "lookahead-True": "ready",
        "lookahead-False": "gone",
    }
