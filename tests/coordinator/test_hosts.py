"""What a cluster file says of another machine, and the command that reaches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.hosts import OPTIONS, Host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("ssh://garage", Host(name="garage")),
        ("ssh://me@garage.local", Host(name="garage.local", user="me")),
        ("ssh://me@10.0.0.7:22", Host(name="10.0.0.7", user="me", port=22)),
        ("ssh://[fe80::1]:2222", Host(name="fe80::1", port=2222)),
    ],
)
def test_a_host_and_how_it_is_written(text: str, host: Host) -> None:
    assert Host.of(text) == host
    assert str(host) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garage",
        "ssh://",
        "ssh://me@",
        "ssh://-oProxyCommand=true",
        "ssh://-l@garage",
        "ssh://me@-garage",
        "ssh://garage:0",
        "ssh://garage:65536",
        "ssh://garage:22/path",
        "ssh://a b",
        "ssh://garage\n",
        "tcp://garage",
        "ssh://fe80::1",
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="ssh://HOST"):
        Host.of(text)


def test_words_are_quoted_for_the_shell_there_and_nobody_is_asked_for_a_password() -> None:
    command = Host(name="fe80::1", user="me", port=7).running(("a b", "$(x)", "'"), settings=Path("/set tings"))
    assert command[: 1 + len(OPTIONS)] == ("ssh", *OPTIONS)
    assert command[1 + len(OPTIONS) :] == ("-F", "/set tings", "-p", "7", "me@fe80::1", "exec 'a b' '$(x)' ''\"'\"''")
    assert "BatchMode=yes" in command
    assert Host(name="x").running(("y",))[-2:] == ("x", "exec y")
