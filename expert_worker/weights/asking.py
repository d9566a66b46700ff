"""One side of a bulk connection: pieces asked for, a few at a time, and judged as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from expert_worker.weights.grid import Piece
from expert_worker.weights.place import Place
from protocol.bulk import WINDOW
from protocol.holder.serve import Connection
from protocol.messages import U8, FetchPiece, PieceBytes, PieceFailed

Dial: TypeAlias = Callable[[Place], Connection]
MAX_PAUSE_S = 1.0
"""Of a longer time between two looks the rest does not count: this process did not run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Came:
    """What became of a piece that was asked for."""

    piece: Piece
    data: U8 | None = None
    """If it is sound."""
    refused: str = ""
    """Why it cannot be had there, if it cannot. With neither, what came was damaged."""


class Asking:
    """A connection to one that gives weights."""

    def __init__(self, place: Place, fingerprint: str, dial: Dial) -> None:
        self.place = place
        self._fingerprint = fingerprint
        self._dial = dial
        self._asked: dict[tuple[int, int], tuple[Piece, bytes]] = {}
        self._line = dial(place)

    @property
    def asked(self) -> int:
        """Pieces that have not come yet."""
        return len(self._asked)

    @property
    def has_room(self) -> bool:
        """Whether another one may be asked for."""
        return len(self._asked) < WINDOW

    def ask(self, piece: Piece, digest: bytes = b"") -> None:
        """For one more, which is to have this SHA-256; without, the one that comes with it."""
        self._asked[piece[:2]] = piece, digest
        self._send(piece)

    def pieces(self) -> list[Piece]:
        """Those that have not come."""
        return [piece for piece, _ in self._asked.values()]

    def ask_again(self) -> None:
        """For all that has not come, over a fresh connection: the other side may be another process by now."""
        self.close()
        self._line = self._dial(self.place)
        for piece in self.pieces():
            self._send(piece)

    def hear(self, timeout_s: float) -> Came | None:
        """The next piece that was asked for, or None if there is none in time. ConfigError if we are not let in."""
        message = self._line.receive(timeout_s)
        if not isinstance(message, PieceBytes | PieceFailed):
            return None
        if (message.file, message.offset) not in self._asked:  # asked for twice, and it came twice
            return None
        piece, digest = self._asked.pop((message.file, message.offset))
        if isinstance(message, PieceFailed):
            return Came(piece=piece, refused=message.reason)
        expected = digest.hex() or message.sha256
        sound = len(message.data) == piece.bytes and sha256(message.data.data).hexdigest() == expected
        return Came(piece=piece, data=message.data if sound else None)

    def close(self) -> None:
        """May be called again."""
        self._line.close(0)

    def _send(self, piece: Piece) -> None:
        self._line.send(
            FetchPiece(fingerprint=self._fingerprint, file=piece.file, offset=piece.offset, bytes=piece.bytes)
        )


class Patience:
    """Time without news, of which only that counts in which this process looked for some."""

    def __init__(self, now: float) -> None:
        self._looked_at = now
        self.s = 0.0
        """Since the last news."""

    def look(self, now: float) -> float:
        """Time has passed; returns `s`."""
        self.s += min(max(0.0, now - self._looked_at), MAX_PAUSE_S)
        self._looked_at = now
        return self.s

    def news(self) -> None:
        """There was some."""
        self.s = 0.0
