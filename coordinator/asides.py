"""Calls of no step, which nobody waits for: their answers are told to whoever asked, when they come, if they do."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.member import Member
from protocol.messages import RunExperts, Sums, WorkFailed

Heard = Callable[[Sums | WorkFailed], None]
"""Is told the answer."""

_Key = tuple[int, str, int, int, int]
"""Whose call, and its session, step, layer and attempt."""


class Asides:
    """Those that are under way."""

    def __init__(self) -> None:
        self._heard: dict[_Key, Heard] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def asked(self, member: Member, call: RunExperts, heard: Heard) -> None:
        """A call was sent to a member."""
        self._heard[_key(member, call)] = heard

    def answered(self, member: Member, answer: Sums | WorkFailed) -> bool:
        """Whether that answers one of them; then it has been told."""
        heard = self._heard.pop(_key(member, answer), None)
        if heard is not None:
            heard(answer)
        return heard is not None

    def forget(self, member: Member) -> None:
        """It is gone, and will answer nothing."""
        for key in [key for key in self._heard if key[0] == member.serial]:
            del self._heard[key]


def _key(member: Member, message: RunExperts | Sums | WorkFailed) -> _Key:
    return member.serial, message.session, message.step, message.layer, message.attempt
