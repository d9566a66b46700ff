"""The coordinator's endpoint, as others are told it and as they see it."""

from __future__ import annotations

import pytest

from coordinator.dialling import address_of, as_seen_here, dials, seen_from_elsewhere, with_endpoint


@pytest.mark.parametrize(
    ("listen", "address", "told"),
    [
        ("tcp://127.0.0.1:7600", "box", "tcp://127.0.0.1:7600"),
        ("tcp://10.0.0.1:7600", "box", "tcp://10.0.0.1:7600"),
        ("tcp://0.0.0.0:7600", "box.local", "tcp://box.local:7600"),
        ("tcp://*:7600", "[fe80::1]", "tcp://[fe80::1]:7600"),
        ("tcp://[::]:7600", None, "tcp://[::]:7600"),
    ],
)
def test_what_others_are_told(listen: str, address: str | None, told: str) -> None:
    assert seen_from_elsewhere(listen, address) == told


@pytest.mark.parametrize(
    ("endpoint", "came_from", "seen"),
    [
        ("tcp://0.0.0.0:7600", "10.1.2.3 50000 10.1.2.4 22", "tcp://10.1.2.3:7600"),
        ("tcp://[::]:7600", "fe80::2 50000 fe80::1 22", "tcp://[fe80::2]:7600"),
        ("tcp://*:7600", "10.1.2.3 1 x 2", "tcp://10.1.2.3:7600"),
        ("tcp://127.0.0.1:7600", "10.1.2.3 50000 10.1.2.4 22", "tcp://127.0.0.1:7600"),
        ("tcp://0.0.0.0:7600", "", "tcp://0.0.0.0:7600"),
    ],
)
def test_all_addresses_are_the_one_from_which_somebody_came(endpoint: str, came_from: str, seen: str) -> None:
    assert as_seen_here(endpoint, came_from) == seen


def test_an_endpoint_among_options() -> None:
    options = ("--name", "a", "--connect", "tcp://0.0.0.0:1", "--threads", "2")
    assert dials(options) == "tcp://0.0.0.0:1"
    assert with_endpoint(options, "tcp://b:1") == ["--name", "a", "--connect", "tcp://b:1", "--threads", "2"]


def test_parts_of_an_endpoint() -> None:
    assert address_of("tcp://[::1]:7600") == ("::1", 7600)
    assert address_of("tcp://*:7600") == ("", 7600)
