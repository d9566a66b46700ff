"""Which addresses a process may use."""

from __future__ import annotations

import pytest

from protocol.endpoints import check_endpoint
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
