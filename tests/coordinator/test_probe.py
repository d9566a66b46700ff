"""Whether somebody listens, told without waiting."""

from __future__ import annotations

import secrets

from coordinator.probe import nobody_listens, somebody_listens
from protocol.wire import Bound


def test_tcp_before_during_and_after() -> None:
    with Bound("tcp://127.0.0.1:*") as bound:
        endpoint = bound.endpoint
        assert somebody_listens(endpoint)
        assert bound.receive(0.05) is None
        assert somebody_listens(endpoint)
        assert not nobody_listens(endpoint)
    assert not somebody_listens(endpoint)
    assert nobody_listens(endpoint)


def test_abstract_ipc_before_during_and_after() -> None:
    endpoint = f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
    assert not somebody_listens(endpoint)
    with Bound(endpoint):
        assert somebody_listens(endpoint)
        assert not nobody_listens(endpoint)
    assert not somebody_listens(endpoint)
    assert nobody_listens(endpoint)


def test_there_is_no_telling_without_a_way() -> None:
    endpoint = "tcp://host.invalid:1"
    assert not somebody_listens(endpoint)
    assert not nobody_listens(endpoint)


def test_ipv6_loopback() -> None:
    assert not somebody_listens("tcp://[::1]:1")
