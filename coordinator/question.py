"""What a model is asked; apart from those who ask, so that it is made before they are loaded."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.sampling import Sampling
from protocol.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the model. RequestError for what no model can take."""

    prompt: str | tuple[int, ...]
    """Text, or token ids as they are."""
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these texts."""
    ignore_eos: bool = False
    """Go on after tokens that mean the end."""
    drafts: int | None = None
    """Tokens that a step may guess, 0 for none; None leaves it to the coordinator. The answer is the same."""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise RequestError("the prompt is empty: one token at least is expected")
        if isinstance(self.prompt, str):
            _check_utf8("the prompt", self.prompt)
        for text in self.stop:
            if not text:
                raise RequestError("a stop string is empty: some text is expected")
            _check_utf8("a stop string", text)


def _check_utf8(what: str, text: str) -> None:
    """Bytes of a command line that are not UTF-8 come as lone surrogates, which no text has."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} is not UTF-8: character {error.start} is {text[error.start]!a}") from None
