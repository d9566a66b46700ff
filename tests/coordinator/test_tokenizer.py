from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from byte_vocabulary import BYTE_TOKENS, byte_vocabulary, merged
from hypothesis import given
from hypothesis import strategies as st

from coordinator.tokenizer import Tokenizer
from coordinator.vocabulary import TokenType, Vocabulary
from protocol.errors import ModelError, RequestError
from protocol.gguf import GgufFile

ROOT = Path(__file__).parents[2]
DEMO_MODEL = ROOT / "configs" / "demo-moe-q4_k_m.gguf"
DEMO_TEXTS = json.loads((ROOT / "tests/data/demo-tokens.json").read_text())
DEMO_PROMPTS = json.loads((ROOT / "tests/data/demo-greedy.json").read_text())[DEMO_MODEL.name]

SPECIAL = {"<|im_start|>": TokenType.CONTROL, "<|im_end|>": TokenType.CONTROL, "    ": TokenType.USER_DEFINED}
SMALL = Tokenizer(byte_vocabulary(SPECIAL, ["a b", "ab c", "Ġ a"]))

TEXTS = st.lists(
    st.one_of(st.text(), st.sampled_from(["<|im_end|>", "<|endoftext|>", "    ", " ab", "abc", "\r\n", "é"]))
)


@pytest.fixture(scope="module")
def demo() -> Iterator[Tokenizer]:
    with GgufFile.open(DEMO_MODEL) as gguf:
        yield Tokenizer.of(gguf.metadata)


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, ids)).decode()


# --- against llama.cpp ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(len(DEMO_TEXTS)))
def test_hard_texts_give_llama_cpps_ids(demo: Tokenizer, index: int) -> None:
    assert demo.encode(DEMO_TEXTS[index]["text"]) == DEMO_TEXTS[index]["ids"]


def test_prompts_give_llama_cpps_ids(demo: Tokenizer) -> None:
    assert [demo.encode(one["prompt"]) for one in DEMO_PROMPTS] == [one["prompt_ids"] for one in DEMO_PROMPTS]


def test_the_demo_model_ends_answers_at_two_tokens(demo: Tokenizer) -> None:
    assert (demo.size, demo.stop_ids) == (4096, [4092, 4094])
    assert [id for id in range(demo.size) if demo.is_control(id)] == [4092, 4093, 4094, 4095]


# --- round trips ------------------------------------------------------------------------------------------------


@given(TEXTS, st.booleans())
def test_the_bytes_of_the_ids_are_those_of_the_text(demo: Tokenizer, pieces: list[str], parse_special: bool) -> None:
    for tokenizer in (demo, SMALL):
        assert text_of(tokenizer, tokenizer.encode("".join(pieces), parse_special)) == "".join(pieces)


@given(TEXTS)
def test_least_is_never_more_than_there_are(demo: Tokenizer, pieces: list[str]) -> None:
    text = "".join(pieces)
    for tokenizer in (demo, SMALL):
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text))


@given(TEXTS)
def test_people_cannot_write_control_tokens(demo: Tokenizer, pieces: list[str]) -> None:
    for tokenizer in (demo, SMALL):
        assert not any(map(tokenizer.is_control, tokenizer.encode("".join(pieces), parse_special=False)))


def test_half_a_surrogate_pair_is_not_text() -> None:
    with pytest.raises(RequestError, match=r"character 2 of the text is '\\ud83d'"):
        SMALL.encode("ab\ud83d")


# --- merging ----------------------------------------------------------------------------------------------------


def test_pairs_merge_in_the_order_of_the_file() -> None:
    assert SMALL.encode("abc ab bab") == [257, ord(" "), 256, ord(" "), ord("b"), 256]
    other = Tokenizer(byte_vocabulary(merges=["Ġ a", "a b", "ab c"]))
    assert other.encode("abc ab") == [258, 256, ord("b")]


def test_the_first_of_two_equal_merges_counts() -> None:
    tokenizer = Tokenizer(byte_vocabulary(merged("a b", "b c"), ["a b", "b c", "a b"]))
    assert tokenizer.encode("abc") == [256, ord("c")]


@pytest.mark.parametrize(("pre", "expected"), [("llama-bpe", [256]), ("gpt-2", [97, 98, 99]), ("qwen2", [97, 98, 99])])
def test_some_take_a_word_that_is_a_token_whole(pre: str, expected: list[int]) -> None:
    tokenizer = Tokenizer(byte_vocabulary({"abc": TokenType.NORMAL}, pre=pre, add_bos=False))
    assert tokenizer.encode("abc") == expected


# --- special tokens ---------------------------------------------------------------------------------------------


def test_user_defined_tokens_are_found_even_where_control_tokens_are_not() -> None:
    start, spaces = 259, 261
    assert SMALL.encode("<|im_start|>    x") == [start, spaces, ord("x")]
    found = SMALL.encode("<|im_start|>    x", parse_special=False)
    assert start not in found
    assert found[-2:] == [spaces, ord("x")]


def test_longer_special_tokens_come_first_wherever_they_are() -> None:
    kinds = {"<a>": TokenType.CONTROL, "<a><b>": TokenType.CONTROL, "b>xyz": TokenType.USER_DEFINED}
    tokenizer = Tokenizer(byte_vocabulary(kinds))
    assert tokenizer.encode("<a><b><a>") == [257, 256]
    assert tokenizer.encode("<b>xyz") == [ord("<"), 258]
    assert tokenizer.encode("<a>b>xyzb>xyz") == [256, 258, 258]
    assert tokenizer.encode("<a><b>xyz") == [257, *b"xyz"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [97]),
        ({"add_bos": True}, [1, 97]),
        ({"add_eos": True}, [97, 2]),
        ({"add_bos": True, "add_eos": True}, [1, 97, 2]),
        ({"pre": "llama-bpe"}, [1, 97]),  # these models expect it
        ({"pre": "llama-bpe", "add_bos": False}, [97]),
    ],
)
def test_bos_and_eos_are_added_where_the_file_says_so(settings: dict[str, Any], expected: list[int]) -> None:
    assert Tokenizer(byte_vocabulary(named={"bos": 1, "eos": 2}, **settings)).encode("a") == expected


def test_a_text_that_brings_its_own_bos_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = Tokenizer(byte_vocabulary({"<s>": TokenType.CONTROL}, named={"bos": 256}, add_bos=True))
    with caplog.at_level(logging.WARNING):
        assert tokenizer.encode("") == [256]
        assert not caplog.text
        assert tokenizer.encode("<s>a") == [256, 256, ord("a")]
    assert "'<s>'" in caplog.text


def test_each_kind_of_token_has_its_bytes() -> None:
    kinds = {
        "Ġé": TokenType.NORMAL,  # bytes in the alphabet: a space and 0xe9
        "two words": TokenType.NORMAL,  # a space is no character of the alphabet, so this is a text
        "Ġ<x>": TokenType.CONTROL,
        "ĠĠ": TokenType.USER_DEFINED,
        "[PAD1]": TokenType.UNUSED,
        "<0xC3>": TokenType.BYTE,
        "Ċ": TokenType.BYTE,
        "<?>": TokenType.UNKNOWN,
    }
    tokens = tuple(token for token in BYTE_TOKENS if token != "Ċ")
    types = bytes([TokenType.NORMAL] * len(tokens) + list(kinds.values()))
    tokenizer = Tokenizer(byte_vocabulary(tokens=(*tokens, *kinds), types=types))
    found = [tokenizer.token_bytes(id) for id in range(255, tokenizer.size)]
    expected = [b" \xe9", b"two words", "Ġ<x>".encode(), "ĠĠ".encode(), b"", b"\xc3", b"\n", b"<?>"]
    assert found == expected
    control = [tokenizer.is_control(id) for id in range(255, tokenizer.size)]
    assert control == [False, False, True, False, False, False, False, True]


@pytest.mark.parametrize("id", [-1, 262, 2**40])
def test_ids_out_of_range_are_refused(id: int) -> None:
    for ask in (SMALL.token_bytes, SMALL.is_control):
        with pytest.raises(RequestError, match=rf"token id {id} at index 0 is not in 0\.\.261"):
            ask(id)
    with pytest.raises(RequestError, match=rf"token id {id} at index 2 is not in 0\.\.261"):
        SMALL.check_ids([0, 261, id, -5])


# --- unsound vocabularies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocabulary", "complaint"),
    [
        (byte_vocabulary(pre="unheard-of"), r"pre-tokenizer 'unheard-of' .* expected one of: default, .*qwen2"),
        (
            byte_vocabulary(tokens=(*BYTE_TOKENS, "x", "y"), types=bytes([1] * 258)),
            r"tokens 120 and 256 are the same, 'x'",
        ),
        (
            byte_vocabulary(tokens=BYTE_TOKENS[1:], types=bytes([1] * 255)),
            r"1 of the 243 bytes that text is made of have no token: 0x00$",
        ),
        (
            byte_vocabulary(tokens=BYTE_TOKENS[20:], types=bytes([1] * 236)),
            r"20 of the 243 bytes .*: 0x00, .*0x07, \.\.\.$",
        ),
        (
            byte_vocabulary(merged("a b"), ["a b", "q ux"], tokens=(*BYTE_TOKENS, "ab"), types=bytes([1] * 257)),
            r"merge 1, 'q ux', needs 'ux', which is not a token",
        ),
        (
            byte_vocabulary(merges=["a b"], tokens=BYTE_TOKENS, types=bytes([1] * 256)),
            r"merge 0, 'a b', needs 'ab', which is not a token",
        ),
        (byte_vocabulary(merges=["ab"]), r"merge 0, 'ab', is not two tokens"),
        (byte_vocabulary(merges=["a b", "a b c"]), r"merge 1, 'a b c', is not two tokens"),
        (byte_vocabulary(add_bos=True), r"a BOS token is to be added .* 'tokenizer.ggml.bos_token_id' is missing"),
        (byte_vocabulary(add_eos=True), r"an? EOS token is to be added .* 'tokenizer.ggml.eos_token_id' is missing"),
    ],
)
def test_an_unsound_vocabulary_is_refused_by_name(vocabulary: Vocabulary, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        Tokenizer(vocabulary)
    assert str(caught.value).startswith("small.gguf: ")


def test_bytes_that_no_text_has_need_no_token() -> None:
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    tokens = tuple(token for byte, token in enumerate(BYTE_TOKENS) if byte not in never)
    tokenizer = Tokenizer(byte_vocabulary(tokens=tokens, types=bytes([1] * len(tokens))))
    assert text_of(tokenizer, tokenizer.encode("\U0010ffff é")) == "\U0010ffff é"


# --- size -------------------------------------------------------------------------------------------------------


def large_vocabulary(triples: int) -> Vocabulary:
    """Every byte, every pair of bytes, and so many merges more."""
    pairs = [a + b for a, b in itertools.product(BYTE_TOKENS, BYTE_TOKENS)]
    longer = [pair + last for pair, last in itertools.islice(itertools.product(pairs, BYTE_TOKENS), triples)]
    merges = [f"{text[0]} {text[1]}" for text in pairs] + [f"{text[:2]} {text[2]}" for text in longer]
    tokens = (*BYTE_TOKENS, *pairs, *longer)
    return byte_vocabulary(tokens=tokens, types=bytes([1] * len(tokens)), merges=tuple(merges))


def cpu_s(vocabulary: Vocabulary) -> float:
    """Processor time that its tokenizer takes, in seconds."""
    start = time.process_time()
    Tokenizer(vocabulary)
    return time.process_time() - start


def test_twice_as_many_tokens_take_about_twice_as_long() -> None:
    small, large = large_vocabulary(0), large_vocabulary(85_000)
    assert len(large.tokens) > 150_000
    assert Tokenizer(large).encode("ab") == [256 + 256 * ord("a") + ord("b")]
    rounds = [(cpu_s(small), cpu_s(large)) for _ in range(2)]
    assert min(long for _, long in rounds) < 8 * min(short for short, _ in rounds), rounds
