"""The relay of tests: what it is told to do to connections is what happens to them."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator

import pytest
from free_ports import free_port
from relays import RelayProcess

WITHIN_S = 10.0
SOON_S = 0.3


def hears(end: socket.socket, within_s: float = WITHIN_S) -> bytes | None:
    """What comes next; None if nothing does."""
    end.settimeout(within_s)
    try:
        return end.recv(100)
    except TimeoutError:
        return None


class Ends:
    """Both ends of one connection through a relay."""

    def __init__(self, listen: int, server: socket.socket) -> None:
        self.near = socket.create_connection(("127.0.0.1", listen), timeout=WITHIN_S)
        self.far, _ = server.accept()
        self.far.settimeout(WITHIN_S)
        for end, other in ((self.near, self.far), (self.far, self.near)):  # so the relay is done with it
            end.sendall(b"hello")
            assert hears(other) == b"hello"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WITHIN_S)
        yield server


@pytest.fixture
def listen() -> int:
    return free_port()


@pytest.fixture
def relay(listen: int, server: socket.socket) -> Iterator[RelayProcess]:
    relay = RelayProcess(listen, server.getsockname()[1])
    yield relay
    relay.close()


@pytest.fixture
def ends(relay: RelayProcess, listen: int, server: socket.socket) -> Ends:
    return Ends(listen, server)


def test_both_ways_pass(ends: Ends) -> None:
    ends.near.sendall(b"up")
    assert hears(ends.far) == b"up"
    ends.far.sendall(b"down")
    assert hears(ends.near) == b"down"


def test_what_is_delayed_comes_later(relay: RelayProcess, ends: Ends) -> None:
    relay.say("delay 100")
    began = time.monotonic()
    ends.near.sendall(b"up")
    assert hears(ends.far) == b"up"
    assert time.monotonic() - began >= 0.1


def test_what_is_much_takes_long_on_a_narrow_link(relay: RelayProcess, ends: Ends) -> None:
    relay.say("mbit 8")
    began = time.monotonic()
    ends.near.sendall(bytes(300_000))
    left = 300_000
    while left:
        left -= len(ends.far.recv(1 << 16))
    assert time.monotonic() - began >= 0.25


def test_what_is_lost_comes_later_and_so_does_what_is_behind_it(relay: RelayProcess, ends: Ends) -> None:
    chances = {seed: random.Random(f"{seed} up") for seed in range(50)}
    lost_then_not = next(seed for seed, one in chances.items() if one.random() < 0.5 <= one.random())
    relay.say(f"loss 0.5 {lost_then_not}")
    began = time.monotonic()
    for piece in (b"a", b"b"):
        ends.near.sendall(piece)
    came = hears(ends.far) or b""
    assert time.monotonic() - began >= 0.2
    assert came + (b"" if len(came) == 2 else hears(ends.far) or b"") == b"ab"


def test_what_is_lost_follows_from_the_seed(relay: RelayProcess, ends: Ends) -> None:
    chance = random.Random("5 up")
    relay.say("loss 0.5 5")
    took: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(20):
        lost = chance.random() < 0.5
        began = time.monotonic()
        ends.near.sendall(b"x")
        assert hears(ends.far) == b"x"
        took[lost].append(time.monotonic() - began)
    assert min(took[True]) >= 0.2 > min(took[False])


@pytest.mark.parametrize(("way", "up", "down"), [("up", None, b"x"), ("down", b"x", None), ("both", None, None)])
def test_what_is_held_comes_when_all_passes_again(
    relay: RelayProcess, ends: Ends, way: str, up: bytes | None, down: bytes | None
) -> None:
    relay.say(f"hold {way}")
    ends.near.sendall(b"x")
    ends.far.sendall(b"x")
    assert hears(ends.far, WITHIN_S if up else SOON_S) == up
    assert hears(ends.near, WITHIN_S if down else SOON_S) == down
    relay.say("pass")
    assert up or hears(ends.far) == b"x"
    assert down or hears(ends.near) == b"x"


def test_nobody_else_gets_through_what_is_held(
    relay: RelayProcess, ends: Ends, listen: int, server: socket.socket
) -> None:
    relay.say("hold both")
    with socket.create_connection(("127.0.0.1", listen), timeout=WITHIN_S):
        server.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            server.accept()
        relay.say("pass")
        server.settimeout(WITHIN_S)
        server.accept()[0].close()


def test_both_ends_notice_a_cut(relay: RelayProcess, ends: Ends) -> None:
    relay.say("cut")
    for end in (ends.near, ends.far):
        with contextlib.suppress(ConnectionResetError):
            assert hears(end) == b""


@pytest.mark.parametrize("end", ["near", "far"])
def test_one_end_alone_notices_what_is_forgotten(relay: RelayProcess, ends: Ends, end: str) -> None:
    relay.say(f"forget {end}")
    closed, kept = (ends.near, ends.far) if end == "near" else (ends.far, ends.near)
    assert hears(closed) == b""
    kept.sendall(b"is anybody there?")
    assert hears(kept, SOON_S) is None
