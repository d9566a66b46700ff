"""Of experts that were dealt out by rank, as many as can be are with whoever had them before. Pure."""

from __future__ import annotations

import native
from protocol.messages import I64, U8


def swapped(owner: I64, before: I64, able: U8) -> I64:
    """(layers, experts): `owner` with some experts of a layer swapped, so that less moves.

    `owner` and `before` (layers, experts) are columns of `able` (layers, experts, holders), or NOBODY. Every holder
    keeps as many experts of a layer as it was given, which are of one size: so it has the room for them. Each swap
    leaves one expert at least where it was, and moves none that was.
    """
    return native.swapped(owner, before, able)
