"""Guesses by prompt lookup, against a plain search through all that was said."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.drafts import CANDIDATES, FIRST_CHANCES, GRAM, LONGEST, MAX_DRAFTS, Drafter

IDS = st.lists(st.integers(0, 3), max_size=60)  # few ids: much repeats itself
SEVERAL = st.lists(st.integers(0, 3) | st.just(2**31 - 1), min_size=GRAM, max_size=60)


def after(prompt: list[int], answer: list[int]) -> Drafter:
    drafter = Drafter()
    drafter.read(prompt)
    for token in answer:
        drafter.take(token)
    return drafter


def alike(ids: list[int], place: int) -> int:
    """How many ids before `place` are as those at the end."""
    pairs = zip(reversed(ids[:place]), reversed(ids), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


@given(SEVERAL)
def test_the_guess_continues_the_longest_of_the_latest_places_that_are_alike(ids: list[int]) -> None:
    places = [place for place in range(GRAM, len(ids)) if alike(ids, place) >= GRAM][-CANDIDATES:]
    draft = after(ids, []).guess(1)
    if not places:
        assert draft.ids == ()
    else:
        best = max(places, key=lambda place: (min(alike(ids, place), LONGEST), place))
        assert draft.ids == (ids[best],)


@given(IDS, IDS)
def test_it_makes_no_difference_to_the_guess_what_was_prompt_and_what_answer(
    prompt: list[int], answer: list[int]
) -> None:
    """Places may differ where one is followed for long, but never for worse."""
    one, other = after(prompt, answer), after([*prompt, *answer], [])
    assert len(one) == len(other) == len(prompt) + len(answer)
    assert one._alike >= other._alike
    assert bool(one.guess(1).ids) == bool(other.guess(1).ids)


@given(SEVERAL, IDS, st.integers(1, MAX_DRAFTS))
def test_a_guess_is_what_following_the_place_id_by_id_gives(prompt: list[int], answer: list[int], limit: int) -> None:
    drafter = after(prompt, answer)
    draft = drafter.guess(limit)
    if not draft.ids:
        return
    ids, place = [*prompt, *answer], drafter._place
    for token in draft.ids:
        assert token == ids[place]
        ids.append(token)
        place += 1
    assert len(draft.ids) == len(draft.chances) == limit
    assert list(draft.chances) == sorted(draft.chances, reverse=True)
    assert 0 <= draft.chances[-1] <= draft.chances[0] <= 1


@given(IDS, st.lists(st.integers(10, 19), min_size=GRAM, max_size=8, unique=True), st.integers(2, 5))
def test_what_runs_in_circles_is_foreseen(prompt: list[int], circle: list[int], times: int) -> None:
    drafter = after(prompt, circle * times)
    assert drafter.guess(len(circle)).ids == tuple(circle)


def test_the_prompt_is_copied() -> None:
    drafter = after([5, 6, 7, 8, 9, 10, 0, 1, 5, 6], [])
    assert drafter.guess(4).ids == (7, 8, 9, 10)
    assert drafter.guess(0).ids == ()
    drafter.take(7)
    assert drafter.guess(2).ids == (8, 9)
    drafter.take(0)  # not what was foreseen
    assert drafter.guess(2).ids == ()
    drafter.take(1)
    assert drafter.guess(2).ids == (5, 6), "0, 1 stood there before"


@pytest.mark.parametrize("ids", [[], [1], [1, 2], [1, 2, 3]])
def test_what_was_never_said_is_not_guessed(ids: list[int]) -> None:
    assert after(ids, []).guess(4).ids == after([], ids).guess(4).ids == ()


def test_chances_follow_what_came_true_whether_drafted_or_not() -> None:
    prompt = [1, 2, 3, 1, 2]
    first = after(prompt, []).guess(1).chances[0]
    assert first == FIRST_CHANCES[GRAM.bit_length()]
    worse = after(prompt, [number for n in range(10, 40) for number in (n, 1, 2)]).guess(1).chances[0]
    better = after([number for n in range(10, 40) for number in (1, 2, 3, n)], [1, 2, 3, 99, 1, 2]).guess(1).chances[0]
    assert worse < first / 4, "30 times in a row something else came"
    assert better > first
    assert after([1, 2, 3] * 20, []).guess(1).chances[0] == FIRST_CHANCES[-1], "a prompt tells nothing of the answer"


def test_a_long_prompt_is_looked_up_at_once() -> None:
    """Counted, not timed: the places that are compared are few, however often the same was said."""
    drafter = after([7] * 20_000, [])
    compared: list[int] = []
    count = drafter._count_alike
    drafter._count_alike = lambda place: compared.append(place) or count(place)  # type: ignore[method-assign, func-returns-value]
    drafter.take(8)
    drafter.take(7)
    drafter.take(7)
    assert len(compared) <= 3 * CANDIDATES
