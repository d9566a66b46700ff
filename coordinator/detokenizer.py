"""Token ids to text as they come: whole characters only, and nothing of a string that ends the answer."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from coordinator.tokenizer import Tokenizer
from protocol.errors import RequestError


class Detokenizer:
    """The text of one answer. Control tokens are not text.

    However the text comes in pieces, the outcome is the same: bytes that are not UTF-8 become U+FFFD just as
    `bytes.decode(errors="replace")` of the whole would have it, and of several stop strings the one that is complete
    first ends the answer (of two at once the longer), so that no token is waited for that cannot matter.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        """`stop` are the strings that end the answer and are not part of it. RequestError if one is empty."""
        if isinstance(stop, str) or not all(stop):
            raise RequestError(f"stop strings {stop!r}: a list of strings expected, none of them empty")
        self.stopped = False
        """True once a stop string was found; ids that come later are ignored."""
        self._tokenizer = tokenizer
        self._stop = tuple(dict.fromkeys(stop))
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""  # complete characters that may be the start of a stop string
        self._given: list[str] = []

    @property
    def text(self) -> str:
        """All that has been given out."""
        return "".join(self._given)

    def push(self, id: int) -> str:
        """Take the next token; returns the text that is now certain, often nothing. RequestError for a bad id."""
        if self._tokenizer.is_control(id) or self.stopped:
            return ""
        return self._give(self._decoder.decode(self._tokenizer.token_bytes(id)), last=False)

    def finish(self) -> str:
        """The answer has ended: returns what was held back."""
        return "" if self.stopped else self._give(self._decoder.decode(b"", final=True), last=True)

    def _give(self, more: str, *, last: bool) -> str:
        text = self._held + more
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            certain = min(found)[1]
        else:
            certain = len(text) if last else len(text) - self._possible_start(text)
        self._held = "" if self.stopped else text[certain:]
        if certain:
            self._given.append(text[:certain])
        return text[:certain]

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        longest = max(map(len, self._stop), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop):
                return length
        return 0
