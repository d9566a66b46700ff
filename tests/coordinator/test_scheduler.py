from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.scheduler import Pending, Share, next_window

LIMITS = st.integers(1, 40)


@st.composite
def pendings(draw: st.DrawFn) -> list[Pending]:
    keys = draw(st.lists(st.integers(0, 1000), unique=True, max_size=50))
    rows = st.sampled_from([0, 1, 1, 1, 2, 7, 100])
    return [Pending(key=key, rows=draw(rows), last_step=draw(st.integers(-1, 20))) for key in keys]


def running(*keys: int) -> list[Pending]:
    return [Pending(key=key, rows=1, last_step=0) for key in keys]


def prompt(key: int, rows: int, last_step: int = 0) -> Pending:
    return Pending(key=key, rows=rows, last_step=last_step)


def as_dict(shares: list[Share]) -> dict[int, int]:
    return {share.key: share.rows for share in shares}


def test_running_sequences_come_first_and_the_prompt_takes_what_is_left() -> None:
    shares = next_window([prompt(0, 100), *running(1, 2, 3)], limit=16)
    assert [(share.key, share.rows) for share in shares] == [(1, 1), (2, 1), (3, 1), (0, 13)]


def test_a_short_prompt_does_not_wait_behind_a_long_one() -> None:
    assert as_dict(next_window([prompt(0, 1000), prompt(1, 5), prompt(2, 1000)], limit=64)) == {0: 30, 1: 5, 2: 29}


def test_more_sequences_than_rows_take_turns() -> None:
    waiting = [*running(0, 1, 2), prompt(3, 10)]
    assert as_dict(next_window(waiting, limit=2)) == {0: 1, 1: 1}
    served = [Pending(key=key, rows=1, last_step=1) for key in (0, 1)]
    assert as_dict(next_window([*served, *waiting[2:]], limit=2)) == {2: 1, 3: 1}


def test_nothing_pending_makes_an_empty_window() -> None:
    assert next_window([prompt(0, 0)], limit=8) == []


def test_a_window_needs_a_row() -> None:
    with pytest.raises(ValueError, match="limit=0"):
        next_window(running(0), limit=0)


@given(pendings(), LIMITS)
def test_a_window_is_full_or_serves_everything(waiting: list[Pending], limit: int) -> None:
    shares = next_window(waiting, limit)
    assert sum(share.rows for share in shares) == min(limit, sum(one.rows for one in waiting))


@given(pendings(), LIMITS)
def test_nobody_gets_more_than_is_pending_or_an_empty_share_or_two(waiting: list[Pending], limit: int) -> None:
    shares = next_window(waiting, limit)
    rows = {one.key: one.rows for one in waiting}
    assert all(1 <= share.rows <= rows[share.key] for share in shares)
    assert len(as_dict(shares)) == len(shares)


@given(pendings(), LIMITS)
def test_shares_of_one_row_come_before_chunks(waiting: list[Pending], limit: int) -> None:
    sizes = [share.rows > 1 for share in next_window(waiting, limit)]
    assert sizes == sorted(sizes)


@given(pendings(), LIMITS)
def test_prompts_share_evenly(waiting: list[Pending], limit: int) -> None:
    """Whoever gets less than another got all it could use, or the other has the one row that could not be divided."""
    rows = {one.key: one.rows for one in waiting}
    shares = next_window(waiting, limit)
    most = max((share.rows for share in shares), default=0)
    assert all(share.rows == rows[share.key] or share.rows >= most - 1 for share in shares)


@given(pendings(), LIMITS)
def test_the_order_of_the_question_does_not_matter(waiting: list[Pending], limit: int) -> None:
    assert next_window(waiting, limit) == next_window(reversed(waiting), limit)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 6), st.integers(1, 60))
def test_nobody_starves_under_a_flood(sequences: int, limit: int, arrivals: int, rows: int) -> None:
    """However many new sequences arrive before every step, those that are there are served within a bounded time."""
    table = {key: Pending(key=key, rows=rows, last_step=-1) for key in range(sequences)}
    first_served: dict[int, int] = {}
    for step in range(-(-sequences // limit)):
        for _ in range(arrivals):
            table[len(table)] = Pending(key=len(table), rows=rows, last_step=step - 1)
        for share in next_window(table.values(), limit):
            table[share.key] = Pending(key=share.key, rows=rows, last_step=step)
            first_served.setdefault(share.key, step)
    assert set(range(sequences)) <= set(first_served)
