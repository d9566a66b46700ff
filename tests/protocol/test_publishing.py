"""One that publishes, those that subscribe, and strangers: what is lost is counted, and nobody waits."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
import zmq
from message_examples import layer_input, plain, same, warm

from protocol import wire
from protocol.endpoints import hints_endpoint
from protocol.errors import ConfigError, ProtocolError
from protocol.messages import Message
from protocol.wire import PUBLISH_QUEUE, Publisher, Subscriber

pytestmark = pytest.mark.timeout(60)

WITHIN_S = 10.0


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(f"ipc://@expertmesh-test-{uuid.uuid4().hex}") as publisher:
        yield publisher


def until_wanted(publisher: Publisher, wanted: bool = True) -> None:
    deadline = time.monotonic() + WITHIN_S
    while publisher.wanted() != wanted:
        assert time.monotonic() < deadline
        zmq.zmq_poll([(publisher._socket, zmq.POLLIN)], 10)


def drained(subscriber: Subscriber) -> list[Message]:
    found = []
    while (message := subscriber.receive(0.02)) is not None:
        found.append(message)
    return found


def test_everybody_hears_what_is_published_while_they_are_there(publisher: Publisher) -> None:
    assert not publisher.wanted()
    assert publisher.send(warm(1))  # to nobody
    with Subscriber(publisher.endpoint) as one:
        until_wanted(publisher)
        with Subscriber(publisher.endpoint) as other:
            message = layer_input(**plain(np.ones((8, 4096), np.float32)))  # in a frame of its own
            heard: list[Message | None] = []
            deadline = time.monotonic() + WITHIN_S
            while not heard:  # libzmq does not tell of a second subscriber
                assert time.monotonic() < deadline
                assert publisher.send(message)
                heard = [found for found in [other.receive(0.1)] if found is not None]
                assert same(one.receive(WITHIN_S), message)
            assert same(heard[0], message)
        assert publisher.wanted()
    until_wanted(publisher, wanted=False)
    assert publisher.refused == publisher.dropped == 0


def test_a_subscriber_may_be_first_and_outlive_its_publisher() -> None:
    endpoint = hints_endpoint(uuid.uuid4().hex)
    with Subscriber(endpoint) as subscriber:
        for life in range(3):
            with Publisher(endpoint) as publisher:
                deadline = time.monotonic() + WITHIN_S
                while not publisher.wanted():  # it subscribes anew when it is looked at
                    assert time.monotonic() < deadline
                    assert subscriber.receive(0.01) is None
                publisher.send(warm(life))
                assert same(subscriber.receive(WITHIN_S), warm(life))


def test_who_does_not_read_misses_some_and_nobody_else_does(publisher: Publisher) -> None:
    message, deadline = layer_input(8, 2048), time.monotonic() + 2 * WITHIN_S
    with Subscriber(publisher.endpoint) as frozen, Subscriber(publisher.endpoint) as reader:
        until_wanted(publisher)
        for number in itertools.count():  # until the latest is heard, behind which there is nothing
            assert time.monotonic() < deadline
            publisher.send(warm(number))
            if any(same(heard, warm(number)) for heard in drained(reader)):
                break
        while publisher.wanted() and publisher.send(message):  # until all that lies between the two ends is filled
            assert time.monotonic() < deadline
            assert same(reader.receive(WITHIN_S), message)
        assert same(reader.receive(WITHIN_S), message)
        for number in range(100):
            assert publisher.wanted()
            assert publisher.send(warm(number))  # to all who have room
            assert same(reader.receive(WITHIN_S), warm(number))
        assert publisher.refused == 1
        came = drained(frozen)
        while len(came) < PUBLISH_QUEUE:
            assert time.monotonic() < deadline
            came += drained(frozen)
        assert len(came) < 100


def test_garbage_at_both_ends_is_dropped_and_counted(publisher: Publisher) -> None:
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        stranger = stack.enter_context(context.socket(zmq.XSUB))
        stranger.linger = 0
        stranger.connect(publisher.endpoint)
        stranger.send(b"\x01some topic")
        stranger.send_multipart([b"noise", b"more of it"])
        deadline = time.monotonic() + WITHIN_S
        while publisher.dropped < 2:
            assert not publisher.wanted()
            assert time.monotonic() < deadline
            zmq.zmq_poll([(publisher._socket, zmq.POLLIN)], 10)
        stranger.send(b"\x01")
        until_wanted(publisher)
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        liar = stack.enter_context(context.socket(zmq.PUB))
        liar.linger = 0
        endpoint = f"ipc://@expertmesh-test-{uuid.uuid4().hex}"
        liar.bind(endpoint)
        subscriber = stack.enter_context(Subscriber(endpoint))
        deadline = time.monotonic() + WITHIN_S
        while subscriber.dropped < 3:
            assert time.monotonic() < deadline
            liar.send(b"noise")
            liar.send_multipart([b"\xc1"] * 50)
            assert subscriber.receive(0.01) is None


def test_what_is_too_long_or_elsewhere_is_refused(publisher: Publisher) -> None:
    with pytest.raises(ProtocolError, match="a frame of"):
        publisher.send(layer_input(**plain(np.ones((8, wire.SMALL_FRAME_BYTES // 32 + 1), np.float32))))
    for make in (Publisher, Subscriber):
        with pytest.raises(ConfigError, match="Another address needs keys"):
            make("tcp://192.0.2.1:7602")
    with pytest.raises(ConfigError, match=r"cannot listen at ipc://@.*in use"):
        Publisher(publisher.endpoint)
    with pytest.raises(ConfigError, match="expected tcp"):
        hints_endpoint("no name\n")
