"""Bounds, array types and the one thing that all messages have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ProtocolError

PROTOCOL = 8
"""docs/protocol.md tells what changed; the handshake refuses any other number."""

MAX_ROWS = 512
"""Rows of one window at most: bounds every array on the wire."""

MAX_ENTRIES_PER_ROW = 31
"""Experts of one row at most: so many weighted rows fit a 64-bit sum on the fixed-point grid."""

MAX_THREADS = 1024
"""Of one process: they tell how fast it is until that is measured."""

LOOKAHEAD_ROWS = 8
"""Rows of a layer's input that are published at most: of more rows a layer needs most of its experts anyway."""

MAX_ENTRY_NS = 10**12
"""Nanoseconds for an expert of a row that are believed."""

MIN_BEAT_S, MAX_BEAT_S = 0.01, 2.0
"""Bounds of the interval between beats, in seconds."""

MAX_STAGED = 16
"""Exchanges that a worker stages at once at most: each takes the memory of one expert more."""

MAX_STAGED_S = 60.0
"""How long an exchange may stay staged, in seconds."""

AS_CONFIGURED = -1
"""Submit.drafts that leave it to the coordinator."""

MAX_REASON = 300
"""Characters of a reason that are kept and shown; whoever gets a longer one cuts it."""

I8 = NDArray[np.int8]
U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Spec:
    """What an array field must look like on the wire: its dtype and its number of dimensions."""

    dtype: str
    dimensions: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message:
    """What all messages have in common: nothing but their kind, the class name."""


ALL_EXPERTS: U8 = np.empty((0, 0), np.uint8)
"""`Hello.able` of who has the weights of all, or holds none."""

NO_RANK: I32 = np.empty((0, 0), np.int32)
"""`Assign.rank` of a coordinator that does not know which experts are used most."""


def at_least(lowest: int, **fields: int) -> None:
    for name, value in fields.items():
        if value < lowest:
            raise ProtocolError(f"{name} must be {lowest} or more, found {value}")
