"""Sockets with keys: who comes in, who is told why not, what is seen on the wire, and floods of strangers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq
from free_ports import four_ports
from key_folders import key_folder, secrets_of, stranger_of, take_back
from message_examples import examples, layer_input, run_experts, same

from protocol.codec import MAX_FRAME_BYTES
from protocol.errors import ConfigError
from protocol.keys import DialKeys, ListenKeys
from protocol.messages import Message, OpenWork, Stop
from protocol.wire import Bound, Dialled, Publisher, Subscriber, wait

pytestmark = pytest.mark.timeout(60)

WITHIN_S = 10.0
ANY_PORT = "tcp://127.0.0.1:*"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key_folder(tmp_path_factory.mktemp("curve") / "keys", "garage")


@pytest.fixture
def bound(folder: Path) -> Iterator[Bound]:
    with Bound(ANY_PORT, keys=ListenKeys.load(folder), max_frame_bytes=MAX_FRAME_BYTES) as bound:
        yield bound


def heard(bound: Bound, dialled: Dialled | None = None, within_s: float = WITHIN_S) -> Message:
    """The next message at `bound`, while the dialling side looks whether it is let in."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if (received := bound.receive(0.02)) is not None:
            return received[1]
        if dialled is not None:
            assert dialled.receive(0) is None
    raise AssertionError(f"nothing within {within_s} s")


def refusal(bound: Bound, dialled: Dialled, within_s: float = WITHIN_S) -> str:
    """Why `dialled` is not let in; nothing must come from it."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        assert bound.receive(0.02) is None
        try:
            assert dialled.receive(0.02) is None
        except ConfigError as error:
            return str(error)
    raise AssertionError(f"no refusal within {within_s} s")


def test_every_message_crosses_both_ways(bound: Bound, folder: Path) -> None:
    with Dialled(bound.endpoint, keys=DialKeys.load(folder), max_frame_bytes=MAX_FRAME_BYTES) as dialled:
        for message in [*examples(), run_experts(rows=512, width=4096)]:
            assert dialled.send(message)
            received = bound.receive(WITHIN_S)
            assert received is not None
            assert same(received[1], message)
            assert bound.send(received[0], message)
            returned = dialled.receive(WITHIN_S)
            assert returned is not None
            assert same(returned, message)


def test_a_frame_of_the_full_length_crosses_though_encryption_adds_to_it(folder: Path) -> None:
    longest = 4096
    with (
        Bound(ANY_PORT, keys=ListenKeys.load(folder), max_frame_bytes=longest) as bound,
        Dialled(bound.endpoint, keys=DialKeys.load(folder), max_frame_bytes=longest) as dialled,
    ):
        dialled.send(Stop())
        assert same(heard(bound), Stop())
        dialled._socket.send(b"x" * longest)
        deadline = time.monotonic() + WITHIN_S
        while not bound.dropped:  # it came, and was none of ours
            assert time.monotonic() < deadline
            assert bound.receive(0.02) is None


def test_without_keys_no_address_of_another_machine_is_listened_at_or_dialled() -> None:
    for make in (Bound, Dialled, Publisher, Subscriber):
        for endpoint in ("tcp://0.0.0.0:7600", "tcp://192.0.2.1:7600"):
            with pytest.raises(ConfigError, match=r"Another address needs keys.*expertmesh keys new"):
                make(endpoint)


@pytest.mark.parametrize("who", ["stranger", "nobody"])
def test_who_is_not_let_in_is_told_within_seconds(bound: Bound, folder: Path, tmp_path: Path, who: str) -> None:
    keys = stranger_of(folder, tmp_path / "other") if who == "stranger" else None
    with Dialled(bound.endpoint, keys=keys) as dialled:
        dialled.send(Stop())
        told = refusal(bound, dialled)
    expected = "does not let in the key of elsewhere" if keys else "lets in nobody without a key: --keys FILE is"
    assert expected in told
    assert not [secret for secret in secrets_of(tmp_path / "other") if secret in told]


def test_who_expects_another_coordinator_is_told_unless_he_is_patient(
    bound: Bound, folder: Path, tmp_path: Path
) -> None:
    other = DialKeys.load(key_folder(tmp_path / "other"))
    with Dialled(bound.endpoint, keys=other, patient=True) as patient, Dialled(bound.endpoint, keys=other) as dialled:
        for one in (patient, dialled):
            one.send(Stop())
        assert "breaks off every greeting: it is no coordinator, or its key is not the one" in refusal(bound, dialled)
        assert patient.receive(0.5) is None


def test_who_has_keys_finds_a_coordinator_without(folder: Path) -> None:
    with Bound("tcp://127.0.0.1:*") as bound, Dialled(bound.endpoint, keys=DialKeys.load(folder)) as dialled:
        dialled.send(Stop())
        assert "uses no keys, so none can be proved" in refusal(bound, dialled)


def test_the_order_of_starting_does_not_matter(folder: Path) -> None:
    endpoint = f"tcp://127.0.0.1:{four_ports()}"
    with Dialled(endpoint, keys=DialKeys.load(folder)) as dialled:
        dialled.send(Stop())
        assert dialled.receive(0.3) is None
        with Bound(endpoint, keys=ListenKeys.load(folder)) as bound:
            assert same(heard(bound, dialled), Stop())


def test_a_key_that_is_taken_back_is_worth_nothing_on_connections_that_are_there(tmp_path: Path) -> None:
    folder = key_folder(tmp_path / "keys", "garage")
    with (
        Bound(ANY_PORT, keys=ListenKeys.load(folder)) as bound,
        Dialled(bound.endpoint, keys=DialKeys.load(folder)) as kept,
        Dialled(bound.endpoint, keys=DialKeys.load(folder / "garage.key")) as garage,
    ):
        for one in (kept, garage):
            one.send(OpenWork(token="before"))
            assert same(heard(bound), OpenWork(token="before"))
        take_back(folder, "garage")
        deadline = time.monotonic() + WITHIN_S
        while not bound.dropped:
            assert time.monotonic() < deadline
            garage.send(OpenWork(token="after"))
            bound.receive(0.05)
        kept.send(OpenWork(token="kept"))
        assert same(heard(bound), OpenWork(token="kept"))
        with Dialled(bound.endpoint, keys=DialKeys.load(folder / "garage.key")) as again:
            again.send(Stop())
            assert "does not let in" in refusal(bound, again)


def test_publishers_have_keys_too_and_hang_up_on_who_is_not_allowed_any_more(tmp_path: Path) -> None:
    folder = key_folder(tmp_path / "keys", "garage")
    listening = ListenKeys.load(folder)
    with (
        Publisher(ANY_PORT, keys=listening) as publisher,
        Bound(ANY_PORT, keys=listening) as bound,
        Subscriber(publisher.endpoint, keys=DialKeys.load(folder)) as kept,
        Subscriber(publisher.endpoint, keys=DialKeys.load(folder / "garage.key")) as garage,
    ):

        def told(one: Subscriber, within_s: float = WITHIN_S) -> bool:
            deadline = time.monotonic() + within_s
            while time.monotonic() < deadline:
                if publisher.wanted():
                    publisher.send(layer_input(1, 256))
                wait([bound], 0.01, beside=[publisher])
                if one.receive(0) is not None:
                    return True
            return False

        assert told(kept)
        assert told(garage)
        take_back(folder, "garage")
        while listening.allowed.name_of("") is None and not listening.allowed.taken_back:
            wait([bound], 0.01)
        while garage.receive(0) is not None:  # what was on the way
            pass
        with pytest.raises(ConfigError, match="does not let in"):
            told(garage)
        assert told(kept)


def test_who_waits_elsewhere_lets_subscribers_in_beside(folder: Path) -> None:
    listening = ListenKeys.load(folder)
    with (
        Publisher(ANY_PORT, keys=listening) as publisher,
        Bound(ANY_PORT, keys=listening) as bound,
        Subscriber(publisher.endpoint, keys=DialKeys.load(folder)) as subscriber,
    ):
        deadline = time.monotonic() + WITHIN_S
        while not publisher._socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:  # a subscription has come
            assert time.monotonic() < deadline
            assert wait([bound], 0.01, beside=[publisher]) == []
        assert publisher.wanted()
        assert subscriber.receive(0) is None


def test_nothing_can_be_read_on_the_wire(bound: Bound, folder: Path) -> None:
    """Read by a relay between the two."""
    word = "a-word-that-is-seen-nowhere"
    port = int(bound.endpoint.rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Dialled(f"tcp://127.0.0.1:{server.getsockname()[1]}", keys=DialKeys.load(folder)) as dialled,
    ):
        dialled.send(OpenWork(token=word))
        server.settimeout(WITHIN_S)
        near, _ = server.accept()
        with near, socket.create_connection(("127.0.0.1", port)) as far:
            seen, received, deadline = b"", None, time.monotonic() + WITHIN_S
            while received is None:
                assert time.monotonic() < deadline
                for source, target in ((near, far), (far, near)):
                    source.settimeout(0.02)
                    try:
                        passed = source.recv(65536)
                    except TimeoutError:
                        continue
                    seen += passed
                    target.sendall(passed)
                received = bound.receive(0.02)
    assert same(received[1], OpenWork(token=word))
    assert b"CURVE" in seen
    assert b"READY" in seen
    assert word.encode() not in seen


def greeting(mechanism: bytes) -> bytes:
    """ZMTP 3.0's, of a server's peer."""
    return b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + mechanism.ljust(20, b"\0") + b"\0" + b"\0" * 31


HOSTILE: dict[str, bytes] = {
    "noise": bytes(range(256)) * 8,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zmtp 1": b"\x01\x00\x05\x00hello",
    "zmtp 2": b"\xff" + b"\0" * 8 + b"\x7f\x01\x05\x00\x00\x00\x03abc",
    "null": greeting(b"NULL") + b"\x04\x26\x05READY" + b"\0" * 32,
    "plain": greeting(b"PLAIN") + b"\x04\x08\x05HELLO\x00\x00",
    "curve and a bad hello": greeting(b"CURVE") + b"\x04\xc8\x05HELLO" + b"\x01\x00" + b"z" * 192,
    "curve and a message": greeting(b"CURVE") + b"\x00\x05hello",
    "curve and a huge command": greeting(b"CURVE") + b"\x06" + b"\x7f" * 8,
    "half a greeting": b"\xff" + b"\0" * 8,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_reach_nobody_and_keep_nobody_out(bound: Bound, folder: Path, name: str) -> None:
    port = int(bound.endpoint.rpartition(":")[2])
    with ExitStack() as stack:
        for _ in range(20):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stranger.sendall(HOSTILE[name])
        assert bound.receive(0.2) is None
        with Dialled(bound.endpoint, keys=DialKeys.load(folder)) as dialled:
            dialled.send(Stop())
            assert same(heard(bound), Stop())
    assert bound.dropped == 0


def test_a_flood_of_handshakes_holds_up_nobody(bound: Bound, folder: Path, tmp_path: Path) -> None:
    """Of strangers who know the coordinator's public key, so that each is asked about."""
    keys: Any = stranger_of(folder, tmp_path / "other")
    with ExitStack() as stack:
        dialled = stack.enter_context(Dialled(bound.endpoint, keys=DialKeys.load(folder)))
        dialled.send(Stop())
        assert same(heard(bound), Stop())
        strangers = [stack.enter_context(Dialled(bound.endpoint, keys=keys)) for _ in range(60)]
        assert bound._gate is not None
        deadline, longest = time.monotonic() + WITHIN_S, 0.0
        while bound._gate.denied < len(strangers):
            assert time.monotonic() < deadline
            began = time.monotonic()
            assert bound.receive(0) is None
            longest = max(longest, time.monotonic() - began)
        assert longest < WITHIN_S / 2
        dialled.send(OpenWork(token="still"))
        assert same(heard(bound), OpenWork(token="still"))
