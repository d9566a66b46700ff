from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.wording import counted, harmless


def test_numbers_agree_with_their_nouns() -> None:
    assert [counted(number, "worker") for number in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert harmless("\x1b[31mred\r\n\u202etxt\udcff") == "\\x1b[31mred\\r\\n\\u202etxt\\udcff"


@given(st.text())
def test_any_text_is_one_printable_line_and_what_was_printable_stays(text: str) -> None:
    assert harmless(text).isprintable()
    if text.isprintable():
        assert harmless(text) == text
