"""Token ids on a command line."""

from __future__ import annotations

from protocol.errors import RequestError


def parse_ids(text: str, option: str) -> tuple[int, ...]:
    """Token ids from "1,2,3"; RequestError names the first that is none."""
    return tuple(_id(item.strip(), option) for item in text.split(","))


def _id(item: str, option: str) -> int:
    if not (item.isascii() and item.isdigit() and int(item) < 2**31):
        raise RequestError(f"{option}: {item!r} is not a token id; numbers like 1,2,3 are expected")
    return int(item)
