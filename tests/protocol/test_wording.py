from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.wording import duration, harmless, percent
from protocol.wording import counted


def test_numbers_agree_with_their_nouns() -> None:
    assert [counted(number, "worker") for number in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]


def test_durations_have_two_units_at_most() -> None:
    lengths = [-1, 0.4, 59.4, 59.6, 130, 3599, 3600, 3900]
    words = ["0 s", "0 s", "59 s", "1 min 0 s", "2 min 10 s", "59 min 59 s", "1 h 0 min", "1 h 5 min"]
    assert [duration(seconds) for seconds in lengths] == words


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert harmless("\x1b[31mred\r\n\u202etxt\udcff") == "\\x1b[31mred\\r\\n\\u202etxt\\udcff"


@given(st.text())
def test_any_text_is_one_printable_line_and_what_was_printable_stays(text: str) -> None:
    assert harmless(text).isprintable()
    if text.isprintable():
        assert harmless(text) == text


def test_a_share_that_is_little_is_not_nothing_and_one_that_is_large_not_all() -> None:
    shares = (0.0, 1e-9, 0.0099, 0.01, 0.384, 0.99, 0.9901, 0.9999, 1.0)
    assert [percent(share) for share in shares] == ["0%", "<1%", "<1%", "1%", "38%", "99%", ">99%", ">99%", "100%"]
