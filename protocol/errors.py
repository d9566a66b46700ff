"""Errors with a complete sentence for the person who reads them."""

from __future__ import annotations


class ExpertmeshError(Exception):
    """Anything a user can cause or must know; its text names the thing, what was found and what was expected."""


class ModelError(ExpertmeshError):
    """A model file is damaged, unsupported, or not what was expected."""


class ConfigError(ExpertmeshError):
    """A configuration or command line cannot be carried out."""


class ProtocolError(ExpertmeshError):
    """A message from outside this process breaks the protocol; it is dropped and counted."""


class RequestError(ExpertmeshError):
    """A request is bad, or failed; the service goes on."""


class ExpertError(ExpertmeshError):
    """One layer's expert work cannot be done by this holder; another holder may succeed.

    `expert` is -1 when no single one is to blame.
    """

    def __init__(self, layer: int, expert: int, reason: str) -> None:
        super().__init__(f"layer {layer}{f', expert {expert}' if expert >= 0 else ''}: {reason}")
        self.layer = layer
        self.expert = expert
        self.reason = reason


class RoomError(ExpertmeshError):
    """A holder has not the memory for what it is to hold."""


class ChangedExpertError(ExpertError):
    """The file with the expert is not what it was when it was opened."""


class ArenaError(ExpertmeshError):
    """A copy of the experts in shared memory cannot be had; a copy of one's own may do instead."""
