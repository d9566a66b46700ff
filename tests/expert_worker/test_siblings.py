"""Fair shares of a machine's memory: equal whoever plans first, never more than there is."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_worker.siblings import ALONE, Siblings, siblings_argument

BYTES = st.integers(0, 1 << 40)


@given(available=BYTES, headroom=BYTES, wants=st.lists(BYTES, min_size=1, max_size=8))
def test_shares_do_not_depend_on_the_order(available: int, headroom: int, wants: list[int]) -> None:
    """Each wants some bytes, and has touched a part of what it got when the next one plans."""
    siblings = Siblings(family=1, here=len(wants), part=None)
    room = max(0, available - headroom)
    got: list[int] = []
    for want in wants:
        may = max(0, siblings.fair(available, headroom, sum(got)) - headroom)
        assert may <= available
        got.append(min(want, may))
        available -= got[-1]  # promised or touched: no longer available either way
    assert sum(got) <= room
    for want, each in zip(wants, got, strict=True):
        assert each == min(want, room // len(wants))


@given(available=BYTES, headroom=BYTES, taken=BYTES)
def test_one_alone_may_have_all(available: int, headroom: int, taken: int) -> None:
    assert ALONE.fair(available, headroom, taken) == available


@given(available=BYTES, headroom=BYTES, taken=BYTES, here=st.integers(1, 64))
def test_nobody_plans_with_more_than_is_available(available: int, headroom: int, taken: int, here: int) -> None:
    assert 0 <= Siblings(family=1, here=here, part=None).fair(available, headroom, taken) <= available


def test_what_a_launcher_says() -> None:
    here = siblings_argument("2/4", "tcp://127.0.0.1:7600")
    assert (here.here, here.part) == (2, 0.5)
    assert siblings_argument("2", "tcp://127.0.0.1:7600") == Siblings(family=here.family, here=2, part=None)
    assert siblings_argument("2", "tcp://127.0.0.1:7700").family not in (0, here.family)


@pytest.mark.parametrize("text", ["", "0", "0/2", "3/2", "-1", "x", "1/x", "1/2/3", "2/"])
def test_what_it_cannot_say(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="N or N/M with N from 1 to M expected"):
        siblings_argument(text, "tcp://127.0.0.1:7600")
