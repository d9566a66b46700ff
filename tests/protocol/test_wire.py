"""Two ends of a real connection, and what strangers do to it."""

from __future__ import annotations

import os
import socket as plain_sockets
import threading
import time
import uuid
from collections.abc import Iterator

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import examples, hello, run_experts, same, submit, sums

from protocol import codec, fields, wire
from protocol.errors import ConfigError, ProtocolError
from protocol.messages import MAX_ROWS, NO_RANK, Assign, BeatSeen, Message, OpenWork, SayHello, Stop
from protocol.wire import Bound, Dialled, wait

pytestmark = pytest.mark.timeout(60)

WITHIN_S = 10.0


def fresh_endpoint() -> str:
    return f"ipc://@expertmesh-test-{uuid.uuid4().hex}"


@pytest.fixture
def bound() -> Iterator[Bound]:
    with Bound(fresh_endpoint(), max_frame_bytes=codec.MAX_FRAME_BYTES) as bound:
        yield bound


@pytest.fixture
def dialled(bound: Bound) -> Iterator[Dialled]:
    with Dialled(bound.endpoint, max_frame_bytes=codec.MAX_FRAME_BYTES) as dialled:
        yield dialled


@pytest.fixture
def peer(bound: Bound, dialled: Dialled) -> bytes:
    """The id that `dialled` has at `bound`."""
    assert dialled.send(OpenWork(token="t"))
    received = bound.receive(WITHIN_S)
    assert received is not None
    return received[0]


@pytest.fixture
def stranger(bound: Bound) -> Iterator[zmq.Socket[bytes]]:
    """A bare socket that can send anything to `bound`."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(bound.endpoint)
        yield stranger


@pytest.mark.parametrize("message", examples(), ids=lambda message: type(message).__name__)
def test_every_message_crosses_both_ways(bound: Bound, dialled: Dialled, message: Message) -> None:
    assert dialled.send(message)
    received = bound.receive(WITHIN_S)
    assert received is not None
    assert same(received[1], message)
    assert bound.send(received[0], message)
    returned = dialled.receive(WITHIN_S)
    assert returned is not None
    assert same(returned, message)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://[::1]:*"])
def test_tcp_takes_a_free_port_and_says_which(endpoint: str) -> None:
    if "::1" in endpoint and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    with Bound(endpoint) as bound, Dialled(bound.endpoint) as dialled:
        assert "*" not in bound.endpoint
        assert dialled.send(Stop())
        assert bound.receive(WITHIN_S) is not None


def test_an_endpoint_in_use_is_a_sentence(bound: Bound) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen at ipc://@.*in use"):
        Bound(bound.endpoint)


def test_the_dialling_side_may_be_first() -> None:
    endpoint = fresh_endpoint()
    with Dialled(endpoint) as dialled:
        assert dialled.send(hello())
        with Bound(endpoint) as bound:
            received = bound.receive(WITHIN_S)
            assert received is not None
            assert same(received[1], hello())


def test_a_peer_that_is_gone_or_unknown_is_unroutable(bound: Bound, dialled: Dialled, peer: bytes) -> None:
    assert not bound.send(b"nobody", Stop())
    assert bound.send(peer, Stop())
    dialled.close()
    deadline = time.monotonic() + WITHIN_S
    while bound.send(peer, Stop()):
        assert time.monotonic() < deadline
        bound.receive(0.01)


def test_a_full_queue_is_reported_and_blocks_nobody(bound: Bound, peer: bytes) -> None:
    message = run_experts(rows=16, width=2048)
    started, sent = time.monotonic(), 0
    while bound.send(peer, message):
        sent += 1
        assert sent < 100 * wire.SEND_QUEUE
    assert sent >= wire.SEND_QUEUE
    assert time.monotonic() - started < WITHIN_S
    with Dialled(fresh_endpoint()) as nobody_there:
        assert sum(nobody_there.send(Stop()) for _ in range(2 * wire.SEND_QUEUE)) == wire.SEND_QUEUE


def test_nothing_to_receive_takes_the_time_given_and_no_more(bound: Bound) -> None:
    assert bound.receive() is None
    started = time.monotonic()
    assert bound.receive(0.05) is None
    assert 0.05 <= time.monotonic() - started < WITHIN_S


def test_wait_tells_which_are_ready(bound: Bound, dialled: Dialled, peer: bytes) -> None:
    with Bound(fresh_endpoint()) as quiet:
        assert wait([quiet, bound, dialled], 0) == []
        dialled.send(Stop())
        assert wait([quiet, bound, dialled], WITHIN_S) == [bound]
        bound.send(peer, Stop())
        assert dialled.receive(WITHIN_S) is not None
        assert bound.receive() is not None
        assert wait([quiet, bound, dialled], 0.001) == []


def test_flushing_close_delivers_what_was_sent_last(bound: Bound) -> None:
    dialled = Dialled(bound.endpoint, max_frame_bytes=codec.MAX_FRAME_BYTES)
    last_words = [sums(rows=400, width=2048), Stop()]  # 5 MB do not fit the socket's buffer
    for message in last_words:
        dialled.send(message)
    dialled.close(flush_s=WITHIN_S)
    for message in last_words:
        received = bound.receive(WITHIN_S)
        assert received is not None
        assert same(received[1], message)


def test_closing_twice_and_without_a_peer_is_quick() -> None:
    dialled = Dialled(fresh_endpoint())
    dialled.send(Stop())
    started = time.monotonic()
    dialled.close()
    dialled.close(flush_s=WITHIN_S)
    assert time.monotonic() - started < WITHIN_S
    waiting = Dialled(fresh_endpoint())
    waiting.send(Stop())
    waiting.close(flush_s=0.05)  # nobody comes
    assert time.monotonic() - started < WITHIN_S


def test_another_thread_may_not_touch_a_socket(bound: Bound, peer: bytes) -> None:
    caught: list[str] = []

    def touch() -> None:
        for action in (lambda: bound.send(peer, Stop()), bound.receive, bound.close):
            try:
                action()
            except RuntimeError as error:
                caught.append(str(error))

    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()
    assert len(caught) == 3
    assert bound.send(peer, Stop())


def test_large_arrays_are_sent_and_received_in_place(bound: Bound, dialled: Dialled) -> None:
    message = run_experts(rows=64, width=2048)
    dialled.send(message)
    received = bound.receive(WITHIN_S)
    assert received is not None
    assert same(received[1], message)
    codes = received[1].codes  # type: ignore[attr-defined]
    assert not codes.flags.writeable
    bound.close()  # the frame's memory lives as long as the array
    np.testing.assert_array_equal(codes, message.codes)


# --- garbage: dropped, counted, and the next message arrives ------------------------------------------------------


def test_malformed_messages_are_counted_and_skipped(
    bound: Bound, dialled: Dialled, peer: bytes, stranger: zmq.Socket[bytes]
) -> None:
    good = [bytes(frame) for frame in codec.encode(run_experts())]
    garbage = [[b""], [b"x"], [b"", b""], [*good, b"more"], [good[0][:-1]], [b"\xc1" * 50] * 3, [b"x"] * 200]
    for frames in garbage:
        stranger.send_multipart(frames)
    stranger.send_multipart(good)
    received = bound.receive(WITHIN_S)
    assert received is not None
    assert same(received[1], run_experts())
    assert bound.dropped == len(garbage)
    for frames in garbage:  # and from the side that listens
        bound._socket.send_multipart([peer, *frames])
    bound.send(peer, SayHello())
    assert isinstance(dialled.receive(WITHIN_S), SayHello)
    assert dialled.dropped == len(garbage)


def test_a_flood_of_garbage_does_not_hold_up_the_reader(bound: Bound, stranger: zmq.Socket[bytes]) -> None:
    for _ in range(3 * wire.MAX_SKIPPED):
        stranger.send(b"garbage")
    deadline = time.monotonic() + WITHIN_S
    rounds = 0
    while bound.dropped < 3 * wire.MAX_SKIPPED:
        assert time.monotonic() < deadline
        before = bound.dropped
        assert bound.receive(0.01) is None
        assert bound.dropped - before <= wire.MAX_SKIPPED
        rounds += 1
    assert rounds >= 3


def test_frames_beyond_any_message_are_not_kept(bound: Bound, stranger: zmq.Socket[bytes]) -> None:
    stranger.send_multipart([b"x" * 10] * 50_000)
    stranger.send_multipart(list(codec.encode(Stop())))
    received = bound.receive(WITHIN_S)
    assert received is not None
    assert bound.dropped == 1


@pytest.mark.parametrize(
    ("longest", "heard"),
    [(wire.SMALL_FRAME_BYTES, None), (codec.MAX_FRAME_BYTES, None), (codec.MAX_FRAME_BYTES, 4096)],
)
def test_a_frame_that_is_too_long_closes_that_connection_only(longest: int, heard: int | None) -> None:
    with (
        Bound(fresh_endpoint(), max_frame_bytes=longest, heard_frame_bytes=heard) as bound,
        Dialled(bound.endpoint) as dialled,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as stranger,
    ):
        stranger.linger = 0
        stranger.connect(bound.endpoint)
        stranger.send(b"hi")
        stranger.send(bytes(heard or longest))
        stranger.send(bytes((heard or longest) + 1))
        assert bound.receive(0.2) is None
        assert bound.dropped == 2  # the too long one never got here
        assert dialled.send(Stop())
        received = bound.receive(WITHIN_S)
        assert received is not None
        assert isinstance(received[1], Stop)


@pytest.mark.parametrize("width", [32, 256, 288, 2048, 8192, 1 << 20])
def test_the_longest_frame_on_work_is_that_of_a_whole_windows_sums(width: int) -> None:
    bound = wire.longest_work_frame(width)
    assert wire.SMALL_FRAME_BYTES <= bound <= codec.MAX_FRAME_BYTES
    if width <= 8192:
        no_short = np.empty((0, width, 6), np.uint8)
        row, long = np.arange(MAX_ROWS, dtype=np.int32), np.zeros((MAX_ROWS, width), np.int64)
        longest = max(map(len, codec.encode(sums(width=width, sum_row=row, sum48=no_short, sum64=long))))
        assert bound == max(longest, wire.SMALL_FRAME_BYTES)


def test_a_frame_that_the_other_side_would_not_take_is_not_sent() -> None:
    with Bound(fresh_endpoint()) as bound, Dialled(bound.endpoint) as dialled:
        fits = submit(prompt_ids=np.zeros(wire.SMALL_FRAME_BYTES // 4, np.int32))
        assert dialled.send(fits)
        received = bound.receive(WITHIN_S)
        assert received is not None
        assert same(received[1], fits)
        too_long = submit(prompt_ids=np.zeros(wire.SMALL_FRAME_BYTES // 4 + 1, np.int32))
        with pytest.raises(ProtocolError, match="Submit: a frame of 1048580 bytes, 1048576 at most expected here"):
            dialled.send(too_long)
        with pytest.raises(ProtocolError, match="1048576 at most"):
            bound.send(received[0], too_long)


def test_the_largest_assignment_and_the_longest_prompt_fit_a_small_frame() -> None:
    longest: list[Message] = [
        Assign(placement=1, in_force=0, held=np.ones((48, 512), np.uint8), rank=NO_RANK),
        submit(prompt_ids=np.zeros(1 << 17, np.int32), stop_ids=[2**40] * fields.MAX_ITEMS),
    ]
    for message in longest:
        assert max(map(len, codec.encode(message))) <= wire.SMALL_FRAME_BYTES


def test_strangers_that_do_not_speak_zeromq_are_closed() -> None:
    with Bound("tcp://127.0.0.1:*") as bound, Dialled(bound.endpoint) as dialled:
        port = int(bound.endpoint.rpartition(":")[2])
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 10_000, b"\xff\0\0\0\0\0\0\0\1\x7f" + os.urandom(500), b""):
            with plain_sockets.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(words)
        assert dialled.send(Stop())
        received = bound.receive(WITHIN_S)
        assert received is not None
        assert isinstance(received[1], Stop)


@settings(max_examples=150)
@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=5))
def test_fuzzed_connection(fuzzed: FuzzedPair, messages: list[list[bytes]]) -> None:
    fuzzed.survives(messages)


@settings(max_examples=150)
@given(st.data())
def test_fuzzed_connection_with_damaged_messages(fuzzed: FuzzedPair, data: st.DataObject) -> None:
    frames = [bytearray(frame) for frame in codec.encode(data.draw(st.sampled_from(examples())))]
    for frame in frames:
        if frame and data.draw(st.booleans()):
            frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    fuzzed.survives([[bytes(frame) for frame in frames]])


class FuzzedPair:
    """A Bound and a Dialled whose raw sockets send each other anything."""

    def __init__(self, bound: Bound, dialled: Dialled, peer: bytes) -> None:
        self.bound, self.dialled, self.peer = bound, dialled, peer

    def survives(self, messages: list[list[bytes]]) -> None:
        """Send them both ways: each is received as a message or counted, and what comes after them arrives."""
        before = self.bound.dropped, self.dialled.dropped
        for frames in messages:
            self.dialled._socket.send_multipart(frames)
            self.bound._socket.send_multipart([self.peer, *frames])
        self.dialled.send(BeatSeen(session="last"))
        self.bound.send(self.peer, BeatSeen(session="last"))
        taken = [0, 0]
        while not _is_last(self.bound.receive(WITHIN_S)):
            taken[0] += 1
        while not _is_last((self.peer, self.dialled.receive(WITHIN_S))):
            taken[1] += 1
        dropped = [self.bound.dropped - before[0], self.dialled.dropped - before[1]]
        assert [sum(pair) for pair in zip(taken, dropped, strict=True)] == [len(messages)] * 2


def _is_last(received: tuple[bytes, Message | None] | None) -> bool:
    assert received is not None
    message = received[1]
    assert message is not None
    return isinstance(message, BeatSeen) and message.session == "last"


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[FuzzedPair]:
    with Bound(fresh_endpoint()) as bound, Dialled(bound.endpoint) as dialled:
        dialled.send(Stop())
        received = bound.receive(WITHIN_S)
        assert received is not None
        yield FuzzedPair(bound, dialled, received[0])
