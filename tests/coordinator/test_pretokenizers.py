from __future__ import annotations

import pytest
from byte_vocabulary import byte_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from coordinator.byte_pairs import byte_pair_encoder, token_ids
from coordinator.pretokenizers import PRE_TOKENIZERS, PreTokenizer, pre_tokenizer
from protocol.errors import ModelError

ENCODERS = {
    name: byte_pair_encoder(byte_vocabulary(), token_ids(byte_vocabulary()), PreTokenizer(patterns=pre.patterns))
    for name, pre in PRE_TOKENIZERS.items()
}


def words(name: str, text: str) -> list[str]:
    cutter = ENCODERS[name].pre_tokenizer
    assert cutter is not None
    return [text[start:end] for _, (start, end) in cutter.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("qwen2", "THEY'VE 12ab  cd!!\n\n e", ["THEY", "'VE", " ", "1", "2", "ab", " ", " cd", "!!\n\n", " e"]),
        ("qwen2", "x = (y);\r\n\t\treturn\n", ["x", " =", " (", "y", ");\r\n", "\t", "\treturn", "\n"]),
        ("qwen2", " \n \n a", [" \n \n", " a"]),
        ("qwen2", "cafe\u0301s!", ["cafe", "\u0301s", "!"]),
        ("qwen2", "'ſa", ["'ſa"]),  # a long s is no contraction
        ("qwen35", "cafe\u0301s! 12", ["cafe\u0301s", "!", " ", "1", "2"]),
        ("qwen35", "हिन्दी!", ["हिन्दी", "!"]),
        ("qwen2", "हिन्दी!", ["ह", "िन", "्द", "ी!"]),
        ("llama-bpe", "THEY'VE 1234567  cd!!\n\n", ["THEY", "'VE", " ", "123", "456", "7", " ", " cd", "!!\n\n"]),
        ("gpt-2", "THEY'VE they've 1234!!\n\ne", ["THEY", "'", "VE", " they", "'ve", " 1234", "!!", "\n", "\n", "e"]),
        ("gpt-2", "a   b  ", ["a", "  ", " b", "  "]),
        ("default", "a+b==c 12345 x,y", ["a", "+", "b", "==", "c", " ", "123", "45", " x", ",", "y"]),
        ("default", "it's $5", ["it", "'", "s", " ", "$", "5"]),
    ],
)  # fmt: skip
def test_text_is_cut_into_words(name: str, text: str, expected: list[str]) -> None:
    assert words(name, text) == expected


@given(st.sampled_from(sorted(PRE_TOKENIZERS)), st.text())
def test_nothing_is_lost_between_words(name: str, text: str) -> None:
    assert "".join(words(name, text)) == text


def test_names_that_mean_the_same_share_one_entry() -> None:
    assert PRE_TOKENIZERS["llama3"] is PRE_TOKENIZERS["llama-v3"] is PRE_TOKENIZERS["llama-bpe"]
    assert [name for name, pre in PRE_TOKENIZERS.items() if pre.ignore_merges] == ["llama-bpe", "llama-v3", "llama3"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"m\.gguf: pre-tokenizer 'tekken'.*gpt-2, llama-bpe.*qwen2"):
        pre_tokenizer("m.gguf", "tekken")
