"""Messages over ZeroMQ, which nothing outside this package knows; docs/protocol.md tells its traps.

`sockets` are what two processes talk through, `publishing` those by which one tells many, `base` what all have in
common; `curve` is their keys and who may come in, `refusal` why a peer hangs up.
"""

from protocol.endpoints import check_endpoint
from protocol.wire.base import MAX_SKIPPED, RECEIVE_QUEUE, SEND_QUEUE, SMALL_FRAME_BYTES
from protocol.wire.curve import new_pair, public_of
from protocol.wire.publishing import PUBLISH_QUEUE, Publisher, Subscriber
from protocol.wire.sockets import Bound, Dialled, longest_work_frame, wait

__all__ = [
    "MAX_SKIPPED",
    "PUBLISH_QUEUE",
    "RECEIVE_QUEUE",
    "SEND_QUEUE",
    "SMALL_FRAME_BYTES",
    "Bound",
    "Dialled",
    "Publisher",
    "Subscriber",
    "check_endpoint",
    "longest_work_frame",
    "new_pair",
    "public_of",
    "wait",
]
