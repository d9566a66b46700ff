"""What is said to and of somebody whose Hello is refused."""

from __future__ import annotations

import logging

from coordinator.hello import MAX_NAME, where
from coordinator.member import Tell, to
from protocol.messages import Hello, Refused

log = logging.getLogger(__name__)


def refuse(peer: bytes, hello: Hello, wrong: list[list[str]]) -> Tell:
    """Every mismatch at once, to it and to the log."""
    refused = Refused(mismatches=wrong)
    name, host = hello.name[:MAX_NAME], hello.host[:MAX_NAME]
    log.warning("refused %r, pid %d on %r: %r", name, hello.pid, host, refused.in_words())
    return to(peer, refused)


def name_taken(holder: Hello) -> list[list[str]]:
    """The mismatch of who claims a name that somebody alive has."""
    return [["name", holder.name, f"a name that no other worker has; {where(holder)} has it"]]


def replaced_by(hello: Hello) -> str:
    """Why the membership of a name's former holder is over."""
    return f"silent, and {where(hello)} has taken its name"
