"""What brings the weights of experts to this machine before they are made ready; here they are already."""

from __future__ import annotations

from collections.abc import Iterator

from expert_worker.sources.source import Experts
from protocol.messages import U8


class Supply:
    """Nothing need be brought: the files are whole, or a share that its worker is assigned nothing beyond."""

    def __init__(self) -> None:
        names = ("fetched_bytes", "fetched_from_caches", "fetch_us", "fetch_left_bytes", "fetched_damaged")
        self.counts = dict.fromkeys(names, 0)
        """Brought since the process began, bytes of that from other workers' caches, how long it took, what is still to
        come, and pieces that came damaged."""

    def make_room(self, wanted: U8) -> None:
        """These (layers, experts) will be asked for. RoomError if there is no room for them."""

    def bring(self, layer: int, experts: Experts) -> Iterator[None]:
        """Bring the weights of these; each item taken does a moment's work. ExpertError or RoomError if that fails."""
        return iter(())

    def close(self) -> None:
        """Give up everything; may be called again."""
