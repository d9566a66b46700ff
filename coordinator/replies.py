"""Is an answer the one that was asked for, and if so: add it to the sums. Anything else leaves them untouched."""

from __future__ import annotations

import native
from protocol.errors import ProtocolError
from protocol.messages import I32, I64, Sums


def add_reply(reply: Sums, row: I32, sums: I64) -> None:
    """Add a worker's answer to `sums` (rows, width); ProtocolError, and nothing added, if it is not what was asked.

    `row` (entries,) has the window's row of each entry that was asked for. The answer's rows must be exactly those, in
    the form that their entries call for, its values finite and in range. Whether its entries were still uncovered is
    for Coverage to say.
    """
    try:
        native.add_answer(sums, row, reply.single_row, reply.single, reply.sum_row, reply.sum48, reply.sum64)
    except ValueError as error:
        raise ProtocolError(str(error)) from None
