"""The report of a full house, everybody in it as talkative as allowed, still fits a message."""

from __future__ import annotations

import itertools

from message_examples import beat, hello

from coordinator.hello import MAX_NAME, Terms
from coordinator.members import MAX_GONE, MAX_MEMBERS, Members
from coordinator.report import mesh_report
from coordinator.tallies import Counters, Tally
from protocol.codec import MAX_HEADER_BYTES, encode
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
    members.from_worker(peer, beat(token=member.token, dropped=MOST, resident_bytes=MOST), 0.0)
    assert members.target is not None
    members.from_worker(peer, AssignFailed(placement=members.target.version, reason=WIDEST * 2 * MAX_REASON), 0.0)
    assert member.failed
    return peer


def test_the_longest_report_fits_a_header() -> None:
    numbers = itertools.count()
    members = Members(TERMS, Stock(slot_bytes=(1,), experts=1), expected=1, fresh_token=lambda: str(next(numbers)))
    for number in range(MAX_GONE):
        members.from_worker(_join(members, number), Stopped(), 0.0)
    for number in range(MAX_GONE, MAX_GONE + MAX_MEMBERS):
        _join(members, number)
    counters = Counters(local_entries=MOST, device_entries=MOST, replans=MOST, late_replies=MOST, dropped=MOST)
    for name in {*(member.name for member in members), *members.gone}:
        counters.workers[name] = Tally(calls=MOST, entries=MOST, busy_us=MOST, wait_us=MOST)
    report = mesh_report(members, counters, set(), 1e9)
    assert len(report["workers"]) == MAX_GONE + MAX_MEMBERS
    assert len(encode(Status(report=report))[0]) < 0.95 * MAX_HEADER_BYTES  # what else the service tells is short
    encode(Finished(request=WIDEST * MAX_NAME, reason="length", prompt_us=MOST, decode_us=MOST, report=report))
