"""Drafts that tests decide on, in place of those that are looked up: right ones, wrong ones, as many as may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from coordinator import requests
from coordinator.drafts import NO_DRAFT, Draft

Tell = Callable[[int, int], int]
"""Of the number of a generated token and the token that comes there: what is drafted."""


def right(index: int, token: int) -> int:
    """Always what comes."""
    return token


def wrong(index: int, token: int) -> int:
    """Never what comes."""
    return token ^ 1


def every_third_wrong(index: int, token: int) -> int:
    """Both: runs end early, and in their middle."""
    return token ^ 1 if index % 3 == 2 else token


def told_drafts(monkeypatch: pytest.MonkeyPatch, answers: Mapping[Sequence[int], Sequence[int]], tell: Tell) -> None:
    """Requests draft what `tell` makes of their answers, which are given by prompt, all thought to be certain."""

    class ToldDrafter:
        def __init__(self) -> None:
            self._prompt: list[int] = []
            self._known = 0

        def __len__(self) -> int:
            return self._known

        def read(self, ids: Iterable[int]) -> None:
            self._prompt += ids
            self._known = len(self._prompt)

        def take(self, token: int) -> None:
            self._known += 1

        def guess(self, limit: int) -> Draft:
            answer = answers.get(tuple(self._prompt), ())
            first = self._known - len(self._prompt)
            ids = tuple(tell(index, answer[index]) for index in range(first, min(first + limit, len(answer))))
            return Draft(ids=ids, chances=(1.0,) * len(ids)) if ids else NO_DRAFT

    monkeypatch.setattr(requests, "Drafter", ToldDrafter)
