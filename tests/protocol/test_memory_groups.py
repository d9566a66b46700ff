"""The arithmetic of a limit, whatever the kernel's counters say."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.memory_groups import GroupError, GroupRoom, left_under, stat_numbers

ALL_ONES = 2**64 - 1
COUNT = st.integers(0, ALL_ONES)


def test_counters_of_all_ones_leave_nothing() -> None:
    left = left_under(ALL_ONES, ALL_ONES, ALL_ONES, ALL_ONES, ALL_ONES)
    assert GroupRoom(group=Path("box"), limit=ALL_ONES, left=left).room == 0


@given(limit=COUNT, usage=COUNT, pages=COUNT, dirty=COUNT, writeback=COUNT)
def test_room_is_never_below_zero_nor_above_the_limit(
    limit: int, usage: int, pages: int, dirty: int, writeback: int
) -> None:
    left = left_under(limit, usage, pages, dirty, writeback)
    assert limit - usage <= left <= limit
    assert 0 <= GroupRoom(group=Path("box"), limit=limit, left=left).room <= limit


@given(st.text(max_size=200) | st.lists(st.from_regex(r"[a-z]{1,2} [0-9]{1,3}", fullmatch=True)).map("\n".join))
def test_any_text_is_numbers_or_an_error(text: str) -> None:
    with suppress(GroupError):
        assert len(stat_numbers(f"{text}\n", Path("memory.stat"))) == text.count("\n") + 1


@pytest.mark.parametrize("line", ["anon  1", " anon 1", "anon 1 ", "anon\t1", "anon ١", "anon 1\x00"])
def test_a_line_is_one_name_and_one_number(line: str) -> None:
    with pytest.raises(GroupError, match="expected one name, only once, and one number"):
        stat_numbers(f"{line}\n", Path("memory.stat"))


def test_a_file_that_was_not_read_to_its_end_is_refused() -> None:
    with pytest.raises(GroupError, match=r"memory\.stat ends within the line 'inactive_fi'"):
        stat_numbers("anon 1\ninactive_fi", Path("memory.stat"))
