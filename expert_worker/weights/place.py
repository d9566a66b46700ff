"""Where a weights process gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """An endpoint, and whom to expect there."""

    endpoint: str
    key: str = ""
    """Public, which whoever listens there must prove to have; empty: none, and nothing is encrypted."""

    def __str__(self) -> str:
        return self.endpoint
