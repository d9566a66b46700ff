"""Wishes that come to a launcher over an abstract socket: heard if sensible and of the same account."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from command_line import environment, wait_until

from coordinator import launcher_desk
from coordinator.launcher_desk import LauncherDesk, Scale, TakeDown, Visitor, Wish, ask_launcher, wish_of
from protocol.errors import ConfigError

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def listen() -> str:
    return f"ipc://@expertmesh-test-{secrets.token_hex(8)}"


@pytest.fixture
def desk(listen: str) -> Iterator[LauncherDesk]:
    with LauncherDesk() as desk:
        desk.open(listen)
        yield desk


def heard(desk: LauncherDesk) -> tuple[Visitor, Wish]:
    found: list[tuple[Visitor, Wish]] = []

    def look() -> bool:
        found.extend(desk.wishes())
        return bool(found)

    assert wait_until(look, 20.0)
    return found[0]


class Asking:
    """Somebody who asks, in a thread."""

    def __init__(self, listen: str, wish: Wish) -> None:
        self.lines: list[str] = []
        self.error = ""
        self._thread = threading.Thread(target=self._ask, args=(listen, wish))
        self._thread.start()

    def _ask(self, listen: str, wish: Wish) -> None:
        try:
            self.lines += ask_launcher(listen, wish, 20.0)
        except ConfigError as error:
            self.error = str(error)

    def ended(self) -> Asking:
        self._thread.join(20.0)
        assert not self._thread.is_alive()
        return self


@pytest.mark.parametrize("wish", [TakeDown(), Scale(counts={"a": 0, "b": 64})])
def test_a_wish_is_heard_and_answered(listen: str, desk: LauncherDesk, wish: Wish) -> None:
    asking = Asking(listen, wish)
    visitor, found = heard(desk)
    assert found == wish
    visitor.tell("one")
    visitor.tell("two")
    visitor.finish()
    assert asking.ended().lines == ["one", "two"]
    assert asking.error == ""


def test_a_reason_against_it_is_an_error(listen: str, desk: LauncherDesk) -> None:
    asking = Asking(listen, TakeDown())
    heard(desk)[0].finish("not today")
    assert asking.ended().error == "not today"


def test_without_a_launcher_or_when_it_ends_there_is_an_error(listen: str) -> None:
    with pytest.raises(ConfigError, match="no launcher is there for"):
        list(ask_launcher(listen, TakeDown(), 1.0))
    with LauncherDesk() as desk:
        desk.open(listen)
        asking = Asking(listen, TakeDown())
        visitor, _ = heard(desk)
        visitor.close()
    assert asking.ended().error.startswith(f"the launcher of {listen} has hung up")


def test_a_launcher_that_says_nothing_is_not_waited_for(listen: str, desk: LauncherDesk) -> None:
    with pytest.raises(ConfigError, match=r"has said nothing for 0\.2 s"):
        list(ask_launcher(listen, TakeDown(), 0.2))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"x",
        b"{}",
        b"[" * 50_000,
        b"\xff",
        b'{"wish": "scale"}',
        b'{"wish": "scale", "counts": {}}',
        b'{"wish": "scale", "counts": {"a": true}}',
        b'{"wish": "scale", "counts": {"a": 65}}',
        b'{"wish": "scale", "counts": {"a": -1}}',
        b'{"wish": "exec"}',
    ],
)
def test_what_is_no_wish(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        wish_of(said)


def test_who_talks_nonsense_or_too_much_is_shown_the_door(listen: str, desk: LauncherDesk) -> None:
    address = launcher_desk._address(listen)
    for said in (b"nonsense\n", b"x" * (launcher_desk.MAX_LINE + 5000)):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(address)
            visitor.setblocking(False)
            left = memoryview(said)

            def shown_out(visitor: socket.socket = visitor) -> bool:
                nonlocal left
                assert list(desk.wishes()) == []
                try:
                    if left:
                        left = left[visitor.send(left) :]
                    return visitor.recv(1000) == b""
                except BlockingIOError:
                    return False
                except OSError:
                    return True

            assert wait_until(shown_out, 20.0)


def test_many_who_say_nothing_keep_nobody_out_for_long(listen: str, desk: LauncherDesk) -> None:
    with ExitStack() as stack:
        for _ in range(launcher_desk.MAX_VISITORS):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(launcher_desk._address(listen))
        assert list(desk.wishes()) == []
        asking = Asking(listen, TakeDown())
        assert list(desk.wishes()) == []
    heard(desk)[0].finish()
    assert asking.ended().error == ""


STRANGER = """
import os, socket
os.setuid(65534)
visitor = socket.socket(socket.AF_UNIX)
visitor.connect({address!r})
visitor.sendall(b'{{"wish": "down"}}\\n')
print(visitor.recv(9))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_account_is_not_heard(listen: str, desk: LauncherDesk) -> None:
    program = STRANGER.format(address=launcher_desk._address(listen))
    stranger = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment())
    assert wait_until(lambda: list(desk.wishes()) == [] and stranger.poll() is not None, 20.0)
    output, _ = stranger.communicate(timeout=10)
    assert output in ("b''\n", "")
