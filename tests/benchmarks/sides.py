"""What is compared: something that continues a prompt and says how long it took, and the processes it does it with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

READY_S = 300.0
"""Time for a side to load its model."""
ASK_S = 300.0
"""Time for one answer, or for all that are asked for at once."""

Prompts = Sequence[Sequence[int]]
"""Ids of one prompt or of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Greedy answers to one prompt, or to several at once."""

    prompt_s: float
    """From the first row of the prompts to the first token of the last answer to begin."""
    decode_s: float
    """From then to the last token."""
    decoded: int
    """Tokens in that time."""
    ids: tuple[tuple[int, ...], ...]
    """Of each answer."""
    note: str = ""
    """What a reader of the figures must know, if anything."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What the program says of how it did it."""


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

    @property
    def workers(self) -> int:
        """Processes that compute for another one; 0 if that does all itself."""

    @property
    def label(self) -> str:
        """Which form the weights have; empty for the model's own file."""

    def ask(self, prompts: Prompts, tokens: int) -> Timing:
        """Continue all prompts at the same time, each by so many greedy tokens. ExpertmeshError if that fails."""

    def pids(self) -> Sequence[int]:
        """The processes that compute for it; sides may share them."""
