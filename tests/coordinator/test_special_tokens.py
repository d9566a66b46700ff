from __future__ import annotations

import pytest
from byte_vocabulary import byte_vocabulary

from coordinator.special_tokens import control_ids, stop_ids
from coordinator.tokenizer import Tokenizer
from coordinator.vocabulary import TokenType


def ids(*texts: str) -> dict[str, int]:
    return {text: id for id, text in enumerate(texts)}


@pytest.mark.parametrize(
    ("texts", "named", "expected"),
    [
        (["a", "<|im_end|>", "<|endoftext|>", "<|im_start|>"], {}, [1, 2]),
        (["<|im_end|>", "stop", "a"], {"eos": 1}, [0, 1]),
        (["a", "b", "c", "d"], {"eos": 3, "eot": 1, "eom": 1, "bos": 2}, [1, 3]),
        (["a"], {}, []),
        (["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"], {}, [0, 1, 2]),
        (["<|fim_pad|>", "pad", "rep"], {"fim_pad": 1, "fim_rep": 2}, [1, 2]),  # what the file names counts
        (["[PAD]", "<PAD>", "<|fim_pad|>"], {}, [2]),  # else one of each sort
        (["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|begin_of_text|>"], {}, [0, 1, 2]),
    ],
)
def test_answers_end_where_llama_cpp_ends_them(texts: list[str], named: dict[str, int], expected: list[int]) -> None:
    assert stop_ids(ids(*texts), named) == expected


def test_control_tokens_are_known_by_their_texts() -> None:
    assert control_ids(ids("a", "<|im_end|>", "<|im_start|>", "<|fim_middle|>", "<PAD>")) == {1, 3, 4}


def test_a_token_that_ends_answers_is_a_control_token_whatever_the_file_says() -> None:
    tokenizer = Tokenizer(byte_vocabulary({"<|im_end|>": TokenType.NORMAL, "<|note|>": TokenType.NORMAL}))
    assert tokenizer.stop_ids == [256]
    assert [tokenizer.is_control(id) for id in (255, 256, 257)] == [False, True, False]
    assert tokenizer.encode("a<|im_end|>") == [ord("a"), 256]
    assert 256 not in tokenizer.encode("a<|im_end|>", parse_special=False)
