"""Hints from a real socket, from nobody, and from somebody who talks nonsense."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
import zmq
from command_line import wait_until
from message_examples import layer_input, warm

from expert_worker.hint_listener import HintListener
from protocol.endpoints import hints_endpoint
from protocol.messages import Message, Warm
from protocol.wire import Publisher

pytestmark = pytest.mark.timeout(60)

WITHIN_S = 10.0


class Followed:
    """What a listener handed on."""

    def __init__(self) -> None:
        self.hints: queue.Queue[Warm] = queue.Queue()
        self.error: Exception | None = None

    def __call__(self, hint: Warm) -> None:
        if self.error is not None:
            raise self.error
        self.hints.put(hint)


@pytest.fixture
def followed() -> Followed:
    return Followed()


@pytest.fixture
def listener(followed: Followed) -> Iterator[HintListener]:
    with HintListener(followed, layers=4, experts=8) as listener:
        yield listener


def session() -> str:
    return uuid.uuid4().hex


def say_until_heard(publisher: Publisher, message: Message, followed: Followed) -> Warm:
    """Somebody who has just subscribed may miss the first."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        publisher.send(message)
        try:
            return followed.hints.get(timeout=0.05)
        except queue.Empty:
            continue
    raise AssertionError("no hint was heard")


def is_dropped(listener: HintListener, publisher: Publisher, message: Message) -> bool:
    """Said again and again, since one may be missed."""
    before = listener.dropped

    def said() -> bool:
        publisher.send(message)
        return listener.dropped > before

    return wait_until(said, WITHIN_S)


def test_hints_of_the_session_that_is_followed_are_handed_on(listener: HintListener, followed: Followed) -> None:
    for number in (session(), session()):
        listener.follow(number)
        with Publisher(hints_endpoint(number)) as publisher:
            hint = say_until_heard(publisher, warm(0, 7, layer=3, session=number), followed)
            assert (hint.session, hint.layer, hint.experts.tolist()) == (number, 3, [0, 7])
        while not followed.hints.empty():
            followed.hints.get()


def test_what_is_no_hint_for_this_model_is_counted(listener: HintListener, followed: Followed) -> None:
    number = session()
    listener.follow(number)
    wrong: list[Message] = [
        warm(0, session="another"),
        warm(0, layer=4, session=number),
        warm(0, 8, session=number),
        layer_input(session=number),
    ]
    with Publisher(hints_endpoint(number)) as publisher:
        say_until_heard(publisher, warm(1, session=number), followed)
        for message in wrong:
            assert is_dropped(listener, publisher, message)
        followed.error = ValueError("this is no source")
        assert is_dropped(listener, publisher, warm(1, session=number))
        followed.error = None
        while not followed.hints.empty():
            followed.hints.get()
        assert say_until_heard(publisher, warm(2, session=number), followed).experts.tolist() in ([1], [2])


def test_garbage_ends_nothing(listener: HintListener, followed: Followed) -> None:
    number = session()
    listener.follow(number)
    with zmq.Context() as context, context.socket(zmq.PUB) as liar:
        liar.linger = 0
        liar.bind(hints_endpoint(number))
        deadline = time.monotonic() + WITHIN_S
        while listener.dropped < 20:
            assert time.monotonic() < deadline
            liar.send(b"noise")
            liar.send_multipart([b""] * 70)
    with Publisher(hints_endpoint(number)) as publisher:
        say_until_heard(publisher, warm(1, session=number), followed)


def test_nobody_need_be_there_and_the_thread_ends() -> None:
    before = set(threading.enumerate())
    with HintListener(lambda hint: None, layers=1, experts=1) as listener:
        listener.follow(session())
        listener.follow("no endpoint has that name\n")
        listener.follow(session())
        assert listener.heard == listener.dropped == 0
    listener.close()
    assert set(threading.enumerate()) <= before
