"""Which addresses a process may use."""

from __future__ import annotations

import pytest

from protocol.endpoints import as_dialled, check_endpoint, check_named, is_local
from protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("endpoint", "resolved"),
    [
        ("tcp://127.0.0.1:7600", "tcp://127.0.0.1:7600"),
        ("tcp://127.9.9.9:1", "tcp://127.9.9.9:1"),
        ("tcp://localhost:7600", "tcp://127.0.0.1:7600"),
        ("tcp://[::1]:65535", "tcp://[::1]:65535"),
        ("ipc://@name", "ipc://@name"),
    ],
)
def test_this_machine_is_allowed(endpoint: str, resolved: str) -> None:
    assert check_endpoint(endpoint) == resolved
    assert check_endpoint(endpoint, dial=True) == resolved


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:0"])
def test_any_free_port_is_for_listening_only(endpoint: str) -> None:
    assert check_endpoint(endpoint) == endpoint
    with pytest.raises(ConfigError, match="port"):
        check_endpoint(endpoint, dial=True)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://0.0.0.0:7600",
        "tcp://*:7600",
        "tcp://192.168.0.2:7600",
        "tcp://example.org:7600",
        "tcp://127.0.0.1.example.org:7600",
        "tcp://[::]:7600",
        "tcp://[127.0.0.1]:7600",
        "tcp://::1:7600",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:7600;tcp://0.0.0.0:1",
        "tcp://127.0.0.1:7600\n",
        "tcp://eth0;127.0.0.1:7600",
        "ipc:///tmp/socket",
        "ipc://socket",
        "ipc://@",
        "ipc://@with space",
        "ipc://@" + "x" * 101,
        "inproc://name",
        "udp://127.0.0.1:7600",
        "",
    ],
)
def test_everything_else_is_refused_with_a_way_to_proceed(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        check_endpoint(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "listened", "dialled"),
    [
        ("tcp://0.0.0.0:7600", "tcp://0.0.0.0:7600", "tcp://127.0.0.1:7600"),
        ("tcp://*:7600", "tcp://0.0.0.0:7600", "tcp://127.0.0.1:7600"),
        ("tcp://[::]:7600", "tcp://[::]:7600", "tcp://[::1]:7600"),
        ("tcp://192.168.0.2:7600", "tcp://192.168.0.2:7600", "tcp://192.168.0.2:7600"),
        ("tcp://garage.local:7600", None, "tcp://garage.local:7600"),
        ("tcp://localhost:7600", "tcp://127.0.0.1:7600", "tcp://127.0.0.1:7600"),
        ("ipc://@name", "ipc://@name", "ipc://@name"),
        ("tcp://1.2.3:7600", None, None),
        ("tcp://eth0;10.0.0.1:7600", None, None),
        ("tcp://a_b:7600", None, None),
        ("tcp://-a:7600", None, None),
        ("tcp://::1:7600", None, None),
        ("ipc:///tmp/socket", None, None),
        ("udp://10.0.0.1:7600", None, None),
    ],
)
def test_keys_allow_every_address_and_names_to_dial(endpoint: str, listened: str | None, dialled: str | None) -> None:
    for dial, expected in ((False, listened), (True, dialled)):
        if expected is None:
            with pytest.raises(ConfigError, match="expected"):
                check_endpoint(endpoint, dial=dial, keyed=True)
        else:
            assert check_endpoint(endpoint, dial=dial, keyed=True) == expected


def test_who_can_be_reached_from_elsewhere() -> None:
    assert is_local("tcp://127.0.0.1:1")
    assert is_local("tcp://localhost:1")
    assert is_local("ipc://@x")
    assert not is_local("tcp://0.0.0.0:1")
    assert not is_local("tcp://10.0.0.1:1")


def test_another_port_is_dialled_at_the_host_that_is_known() -> None:
    assert as_dialled("tcp://garage:7600", "tcp://0.0.0.0:7601") == "tcp://garage:7601"
    assert as_dialled("tcp://[::1]:7600", "tcp://[::]:7601") == "tcp://[::1]:7601"
    assert as_dialled("ipc://@x", "ipc://@x-work") == "ipc://@x-work"
    assert as_dialled("tcp://127.0.0.1:7600", "ipc://@x-work") == "ipc://@x-work"


def test_where_others_are_told_to_dial_is_one_address() -> None:
    assert check_named("tcp://localhost:7700") == "tcp://127.0.0.1:7700"
    assert check_named("ipc://@name", keyed=True) == "ipc://@name"
    assert check_named("tcp://10.0.0.2:7700", keyed=True) == "tcp://10.0.0.2:7700"
    for everywhere in ("tcp://0.0.0.0:7700", "tcp://*:7700", "tcp://[::]:7700", "tcp://[::0]:7700"):
        with pytest.raises(ConfigError, match="others are told to dial it, so one address"):
            check_named(everywhere, keyed=True)
    for bad in ("tcp://garage.local:7700", "tcp://10.0.0.2:*"):
        with pytest.raises(ConfigError):
            check_named(bad, keyed=True)
    with pytest.raises(ConfigError, match="needs keys"):
        check_named("tcp://10.0.0.2:7700")
