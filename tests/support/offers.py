"""What the process that gives weights beside a coordinator knows of others that give them."""

from __future__ import annotations

from pathlib import Path

from command_line import wait_until

from protocol.bulk import BULK_FRAME_BYTES
from protocol.keys import DialKeys
from protocol.messages import AskHolders, Holders
from protocol.model import Model
from protocol.neighbours import bulk_endpoint
from protocol.wire import Dialled


def are_offered(part: float, endpoint: str, model: Path, keys: DialKeys | None = None, within_s: float = 60.0) -> bool:
    """Whether, in time, somebody gives this part of all the experts to the cluster of a coordinator's endpoint."""
    with Model.open(model) as opened:
        question = AskHolders(fingerprint=opened.fingerprint)
    with Dialled(bulk_endpoint(endpoint), keys=keys, max_frame_bytes=BULK_FRAME_BYTES) as line:

        def heard() -> bool:
            line.send(question)
            holders = line.receive(1.0)
            return isinstance(holders, Holders) and any(have.mean() >= part for have in holders.have)

        return wait_until(heard, within_s)
