from __future__ import annotations

from itertools import chain, cycle

import pytest
from byte_vocabulary import byte_vocabulary
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.detokenizer import Detokenizer
from coordinator.tokenizer import Tokenizer
from coordinator.vocabulary import TokenType
from protocol.errors import RequestError

WORDS = ("ab", "abc", "bca", "<|", "é", "🙂", "�")
MERGES = ["a b", "ab c", "Ã ©", "ð Ł", "ĻĤ a"]  # é whole, the first and the second half of an emoji
MADE = {"ĻĤ": TokenType.NORMAL, "<|im_end|>": TokenType.CONTROL}
TOKENIZER = Tokenizer(byte_vocabulary(MADE, MERGES))
END = TOKENIZER.size - 1
IDS = st.lists(st.integers(0, END), max_size=40)


def tokens(pieces: list[str], by_bytes: list[bool]) -> list[int]:
    """Ids of the pieces, each in as few tokens as there are for it, or byte by byte."""
    ids = [list(piece.encode()) if fine else TOKENIZER.encode(piece) for piece, fine in zip(pieces, cycle(by_bytes))]
    return list(chain.from_iterable(ids))


def run(ids: list[int], stop: list[str]) -> tuple[str, Detokenizer]:
    detokenizer = Detokenizer(TOKENIZER, stop)
    given = [detokenizer.push(id) for id in ids]
    return "".join([*given, detokenizer.finish()]), detokenizer


def whole(ids: list[int]) -> str:
    return b"".join(TOKENIZER.token_bytes(id) for id in ids if id != END).decode(errors="replace")


def cut_letter_by_letter(text: str, stop: list[str]) -> tuple[str, bool]:
    """What is left of a text that is read one character at a time, until a stop string is complete."""
    for end in range(1, len(text) + 1):
        ends = [len(one) for one in stop if text[:end].endswith(one)]
        if ends:
            return text[: end - max(ends)], True
    return text, False


# --- characters -------------------------------------------------------------------------------------------------


@given(IDS)
@example([0xF0, 0x9F, ord("a")])  # a character that breaks off
@example([0xE2, 0x28, 0xA1, 0xED, 0xA0, 0x80, 0xC0, 0xF5, 0xF4, 0x90, 0x80, 0x80])  # bytes that no text has
@example([0xF0, 0x9F, END, 0x99, 0x82])  # a control token inside of a character
@example([0xE2, 0x82])
def test_the_pieces_are_the_text_of_all_bytes(ids: list[int]) -> None:
    text, detokenizer = run(ids, [])
    assert text == detokenizer.text == whole(ids)
    assert not detokenizer.stopped


@given(IDS)
def test_nothing_that_was_given_out_is_taken_back(ids: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    for count, id in enumerate(ids, 1):
        detokenizer.push(id)
        assert whole(ids).startswith(detokenizer.text)
        held = whole(ids[:count])[len(detokenizer.text) :]
        assert held in ("", "�", "��")  # at most the bytes of one character (two for half a surrogate pair)


def test_a_character_comes_when_it_is_complete() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert [detokenizer.push(byte) for byte in "a🙂é".encode()] == ["a", "", "", "", "🙂", "", "é"]
    assert detokenizer.finish() == ""


def test_what_no_character_can_begin_with_comes_at_once() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert [detokenizer.push(byte) for byte in (0xFF, 0xE2, 0x82, 0x41)] == ["�", "", "", "�A"]


def test_an_unfinished_character_comes_at_the_end() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert [detokenizer.push(byte) for byte in (0xE2, 0x82)] == ["", ""]
    assert (detokenizer.finish(), detokenizer.finish(), detokenizer.text) == ("�", "", "�")


def test_control_tokens_are_not_text() -> None:
    assert run([ord("a"), END, ord("b")], [])[0] == "ab"


# --- stop strings -----------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([*"abcé<|🙂 ", *WORDS]), max_size=12),
    st.lists(st.booleans(), min_size=1),
    st.lists(st.text(alphabet="abc<|é", min_size=1, max_size=4), max_size=3),
)
@example(["ab", "ab", "c"], [False], ["abc"])
@example(["ab", "c"], [False], ["abcd", "bc"])
@example(["ab", "c"], [False], ["c", "abc"])
@example(["abc"], [False], ["abc", "b"])
def test_the_text_ends_at_a_stop_string_however_it_came(
    pieces: list[str], by_bytes: list[bool], stop: list[str]
) -> None:
    text, detokenizer = run(tokens(pieces, by_bytes), stop)
    assert (text, detokenizer.stopped) == cut_letter_by_letter("".join(pieces), stop)
    assert detokenizer.text == text


@given(IDS, st.lists(st.text(alphabet="ab�é", min_size=1, max_size=3), max_size=3))
def test_stop_strings_are_looked_for_in_the_text_of_any_bytes(ids: list[int], stop: list[str]) -> None:
    text, detokenizer = run(ids, stop)
    assert (text, detokenizer.stopped) == cut_letter_by_letter(whole(ids), stop)


def test_what_may_begin_a_stop_string_is_held_back_and_then_given_out() -> None:
    detokenizer = Detokenizer(TOKENIZER, ["<|end|>", "\n\nUser:"])
    assert [detokenizer.push(byte) for byte in b"a <|en. \n\nUs"] == ["a", " ", *[""] * 4, "<|en.", " ", *[""] * 4]
    assert detokenizer.push(ord("a")) == "\n\nUsa"
    assert detokenizer.push(ord("<")) == ""
    assert detokenizer.finish() == "<"
    assert detokenizer.text == "a <|en. \n\nUsa<"


def test_a_stop_string_that_begins_in_one_token_and_ends_in_another() -> None:
    text, detokenizer = run(TOKENIZER.encode("xab") + TOKENIZER.encode("abca") + [ord("z")], ["bab"])
    assert (text, detokenizer.stopped) == ("xa", True)


def test_nothing_comes_after_a_stop_string() -> None:
    detokenizer = Detokenizer(TOKENIZER, ["ab"])
    assert [detokenizer.push(byte) for byte in b"xabyz"] == ["x", "", "", "", ""]
    assert (detokenizer.finish(), detokenizer.text, detokenizer.stopped) == ("", "x", True)


@pytest.mark.parametrize("stop", [[""], ["a", ""], "ab"])
def test_stop_strings_that_make_no_sense_are_refused(stop: list[str]) -> None:
    with pytest.raises(RequestError, match="stop strings"):
        Detokenizer(TOKENIZER, stop)


def test_an_id_that_is_no_token_is_refused() -> None:
    with pytest.raises(RequestError, match="token id 9999"):
        Detokenizer(TOKENIZER).push(9999)
