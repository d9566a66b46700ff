"""What keys and values can be cached as, and how it is said that there is no room for them."""

from __future__ import annotations

from protocol.errors import ConfigError, RequestError
from protocol.geometry import Geometry

KV_TYPES = ("f16", "f32")
"""What keys and values can be cached as."""


def check_kv(kv: str) -> None:
    """ConfigError unless it is one of KV_TYPES."""
    if kv not in KV_TYPES:
        raise ConfigError(f"the type of cached keys and values is {kv!r}, expected {' or '.join(KV_TYPES)}")


def no_room(positions: int, geometry: Geometry, kv: str, where: str = "") -> RequestError:
    """That a cache cannot be had; `where` names the memory if that is not the machine's own."""
    return RequestError(
        f"no room for the keys and values of {positions} positions{where and f' in {where}'}: "
        f"{geometry.layers} layers of {geometry.kv_heads} heads of {geometry.head_dim} columns in {kv}; "
        "fewer tokens may fit"
    )
