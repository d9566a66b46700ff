"""The coordinator's two listening sockets, as `Cluster` knows them: handing over and taking in messages takes time."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from coordinator.simulation.scenario import Costs
from coordinator.simulation.timeline import Timeline
from protocol.messages import Message, RunExperts, Sums

LEAST_BYTES = 200
"""Of any message, headers of all layers included."""


class Peer(Protocol):
    """The other end of a connection."""

    def closed_at(self, now: float) -> bool:
        """Whether the coordinator's machine knows by now that the connection is closed."""

    def sent(self, message: Message, when: float, count: int) -> None:
        """A message of `count` bytes was sent to it at `when`."""


class SimulatedSocket:
    """Peers, and what of them has arrived."""

    def __init__(self, timeline: Timeline, costs: Costs, row_bytes_out: int, width: int) -> None:
        """Sizes of messages are those of rows of `width` columns, whatever is really in them."""
        self.dropped = 0
        self.inbox: deque[tuple[bytes, Message]] = deque()
        self.peers: dict[bytes, Peer] = {}
        self._timeline = timeline
        self._costs = costs
        self._row_bytes_out, self._width = row_bytes_out, width

    def send(self, peer: bytes, message: Message) -> bool:
        """False if the peer is gone, as far as this machine knows."""
        count = self.size(message)
        self._timeline.spend(self._cost(message, count), "sending")
        to = self.peers.get(peer)
        if to is None or to.closed_at(self._timeline.now):
            return False
        to.sent(message, self._timeline.now, count)
        return True

    def receive(self, timeout_s: float = 0) -> tuple[bytes, Message] | None:
        """What came first of all that has arrived; never waits."""
        self._timeline.catch_up()
        if not self.inbox:
            return None
        peer, message = self.inbox.popleft()
        self._timeline.spend(self._cost(message, self.size(message)), "calls")
        return peer, message

    def close(self, flush_s: float = 0) -> None:
        """Nobody can be reached."""
        self.peers.clear()

    def size(self, message: Message) -> int:
        """Bytes on the wire, about."""
        match message:
            case RunExperts():
                return LEAST_BYTES + len(message.row) * self._row_bytes_out + 12 * len(message.entry_expert)
            case Sums():
                rows = 4 * len(message.single_row) + 6 * len(message.sum_row)
                return LEAST_BYTES + rows * self._width
        return LEAST_BYTES

    def _cost(self, message: Message, count: int) -> float:
        costs = self._costs
        match message:
            case RunExperts():
                return costs.call_s + count * costs.byte_s
            case Sums():
                return costs.answer_s + count * costs.byte_s
        return costs.control_s
