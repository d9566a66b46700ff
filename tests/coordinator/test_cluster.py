"""What peers say on either socket, however large, ends nothing that it should not end; over scripted sockets."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from message_examples import LONGEST_TEXT, examples, hello, largest, with_longest_text
from scripted_answers import failed
from scripted_mesh import TERMS, ScriptedMesh, Worker
from scripted_parts import expected_sums

from coordinator.cluster import STRIKES
from coordinator.report import mesh_report
from protocol.codec import encode
from protocol.messages import (
    MAX_REASON,
    Assign,
    AssignFailed,
    Beat,
    Message,
    Refused,
    RequestFailed,
    SayHello,
    Status,
    Stop,
    Welcome,
)
from protocol.wire import SMALL_FRAME_BYTES

IDS = np.array([[0, 1, 2], [3, 1, 6]], np.int32)
WEIGHTS = np.full((2, 3), 0.25, np.float32)


class Peer:
    """Somebody on control that says what a test makes it say."""

    def __init__(self, mesh: ScriptedMesh, name: str) -> None:
        self.heard: list[Message] = []
        self._mesh = mesh
        self.id = name.encode()
        mesh.control.peers[self.id] = self.heard.append

    def say(self, *messages: Message) -> None:
        self._mesh.control.inbox.extend((self.id, message) for message in messages)
        self._mesh.settle()

    def greet(self) -> None:
        self.say(hello(role="client", fingerprint="", geometry={}))
        assert isinstance(self.heard.pop(), Welcome)


def report_of(mesh: ScriptedMesh) -> dict[str, object]:
    """What AskStatus is answered with; it can be sent."""
    cluster = mesh.cluster
    report = mesh_report(mesh.members, cluster.counts(), cluster.suspects(), mesh.clock())
    encode(Status(report=report))
    return report


def check(mesh: ScriptedMesh) -> None:
    """It still computes, and tells how it is."""
    mesh.settle()
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))
    report_of(mesh)


@pytest.mark.parametrize("greeted", [False, True])
def test_only_a_welcomed_client_can_stop_the_cluster(greeted: bool) -> None:
    mesh = ScriptedMesh(1)
    peer = Peer(mesh, "client")
    if greeted:
        peer.greet()
    peer.say(Stop())
    assert mesh.cluster.closing == greeted
    assert [type(message) for message in peer.heard] == ([] if greeted else [SayHello])


def test_a_worker_cannot_stop_the_cluster() -> None:
    mesh = ScriptedMesh(1)
    mesh.workers[0].say_control(Stop())
    mesh.settle()
    assert not mesh.cluster.closing
    assert mesh.workers[0].told_hello()


def test_hello_and_stop_at_one_go_are_obeyed() -> None:
    mesh = ScriptedMesh(1)
    Peer(mesh, "client").say(hello(role="client", fingerprint="", geometry={}), Stop())
    assert mesh.cluster.closing


def test_the_largest_sound_messages_of_every_kind_end_nothing() -> None:
    mesh = ScriptedMesh(2)
    stranger, client = Peer(mesh, "stranger"), Peer(mesh, "client")
    client.greet()
    worker = mesh.workers[0]
    sound = [*largest(SMALL_FRAME_BYTES), *(longer for one in examples() for longer in with_longest_text(one))]
    for message in [one for one in sound for _ in range(2)]:
        stranger.say(message)
        if not isinstance(message, Stop):
            client.say(message)
        mesh.work.inbox.append((b"stranger", message))
        worker.say(message)
        worker.say_control(message)
        mesh.settle()
    check(mesh)
    assert not mesh.cluster.closing


def test_of_what_a_worker_said_while_nobody_listened_only_the_last_hello_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says Hello on a fresh connection each time; opening a GPU takes the coordinator a while."""
    caplog.set_level(logging.INFO)
    mesh = ScriptedMesh(0)
    Worker(mesh, "eager")
    [(_, said)] = mesh.control.inbox
    mesh.control.inbox.extendleft((peer, said) for peer in (b"closed", b"closed before"))
    check(mesh)
    assert caplog.text.count("joined") == 1
    assert [member.name for member in mesh.members] == ["eager"]
    assert not mesh.members.gone


def test_everybody_who_speaks_another_protocol_is_refused() -> None:
    mesh = ScriptedMesh(0)
    strangers = [Peer(mesh, "one"), Peer(mesh, "two")]
    mesh.control.inbox.extend((peer.id, hello(protocol=9, incarnation="")) for peer in strangers)
    mesh.settle()
    assert [type(message) for peer in strangers for message in peer.heard] == [Refused, Refused]


def test_a_hello_with_a_long_text_is_refused() -> None:
    mesh = ScriptedMesh(1)
    peer = Peer(mesh, "peer")
    claim = hello(fingerprint=TERMS.fingerprint, geometry=dict(TERMS.geometry))
    longer = with_longest_text(claim)
    peer.say(*longer)
    assert [type(message) for message in peer.heard] == [Refused] * len(longer)
    peer.say(claim)
    assert isinstance(peer.heard[-1], Welcome)


def test_the_reason_why_an_assignment_failed_is_cut() -> None:
    mesh = ScriptedMesh(1)
    late = Worker(mesh, "late")
    while mesh.members.assignment.target is None:
        mesh.cluster.attend()
    late.say_control(AssignFailed(placement=mesh.members.assignment.target.version, reason=LONGEST_TEXT))
    check(mesh)
    assert reasons(mesh) == {"late": f"cannot hold its experts: {LONGEST_TEXT[:MAX_REASON]}"}


def test_the_reason_why_work_failed_is_cut() -> None:
    mesh = ScriptedMesh(1)
    mesh.workers[0].behaviour = lambda work: failed(work, LONGEST_TEXT)
    for _ in range(STRIKES):
        check(mesh)
    assert reasons(mesh) == {
        "worker-0": f"failed {STRIKES} times in a row, last: {LONGEST_TEXT[:MAX_REASON]}",
    }


def reasons(mesh: ScriptedMesh) -> dict[str, str]:
    """Why workers get no more work, by name."""
    return {member.name: member.failed for member in mesh.members if member.failed}


def test_a_message_that_cannot_be_sent_is_dropped_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    mesh = ScriptedMesh(1)
    peer = Peer(mesh, "client")
    with caplog.at_level(logging.ERROR):
        assert mesh.cluster.tell(peer.id, RequestFailed(request="r", reason=LONGEST_TEXT + "x"))
    assert peer.heard == []
    assert "dropped RequestFailed" in caplog.text
    check(mesh)


def test_what_a_beat_says_of_itself_is_no_more_than_numbers() -> None:
    mesh = ScriptedMesh(1)
    worker = mesh.workers[0]
    (beat,) = [one for one in largest(SMALL_FRAME_BYTES) if isinstance(one, Beat)]
    worker.say_control(replace(beat, token=worker.token))
    check(mesh)


def test_who_joins_when_another_is_found_dead_is_told_the_latest_placement_last() -> None:
    """That a worker has died shows when it is told of the placement with the one who joins, before that one is told."""
    mesh = ScriptedMesh(2)
    mesh.settle()
    mesh.workers[0].die()
    newcomer = Worker(mesh, "newcomer")
    mesh.settle()
    versions = [
        message.placement
        for peer, message in mesh.control.sent
        if peer == newcomer.control and isinstance(message, Assign)
    ]
    assert versions == sorted(versions)
    assert len(versions) == 2
    assert {member.name for member in mesh.members} == {"worker-1", "newcomer"}
    check(mesh)
    assert len(mesh.members.assignment.active.members) == 2
