"""What is compared: something that continues a prompt and says how long it took, and the processes it does it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

READY_S = 300.0
"""Time for a side to load its model."""
ASK_S = 300.0
"""Time for one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One greedy answer."""

    prompt_s: float
    """From the first row of the prompt to the first token."""
    decode_s: float
    """From the first token to the last."""
    ids: tuple[int, ...]
    note: str = ""
    """What a reader of the figures must know, if anything."""


class Side(Protocol):
    """Processes that hold a model, use the processor when asked, and only then."""

    @property
    def program(self) -> str:
        """Whose side it is."""

    @property
    def name(self) -> str:
        """How it is set up, for a table."""

    @property
    def threads(self) -> int:
        """How many compute at one time, at most."""

    def ask(self, prompt_ids: Sequence[int], tokens: int) -> Timing:
        """Continue the prompt by so many greedy tokens. ExpertmeshError if that fails."""

    def pids(self) -> Sequence[int]:
        """The processes that compute for it; sides may share them."""
