"""What a model is asked; apart from those who ask, so that it is made before they are loaded."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.sampling import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the model."""

    prompt: str | tuple[int, ...]
    """Text, or token ids as they are."""
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these texts."""
    ignore_eos: bool = False
    """Go on after tokens that mean the end."""
