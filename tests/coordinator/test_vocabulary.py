from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from byte_vocabulary import BYTE_TOKENS, byte_vocabulary
from gguf_bytes import gguf_bytes

from coordinator.vocabulary import TokenType, Vocabulary
from protocol.errors import ModelError
from protocol.gguf import GgufFile

SOUND: dict[str, Any] = {
    "model": "gpt2",
    "pre": "qwen2",
    "tokens": [*BYTE_TOKENS, "ab", "<s>"],
    "token_type": [1] * 257 + [3],
    "merges": ["a b"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.gguf"


def read(path: Path, **changes: Any) -> Vocabulary:
    """The vocabulary of a file with some keys changed, or (None) left out."""
    keys = {f"tokenizer.ggml.{name}": found for name, found in {**SOUND, **changes}.items() if found is not None}
    path.write_bytes(gguf_bytes(keys))
    with GgufFile.open(path) as gguf:
        return Vocabulary.of(gguf.metadata)


def test_everything_is_read(path: Path) -> None:
    found = read(path, bos_token_id=257, eos_token_id=3, fim_pad_token_id=4, add_bos_token=True, add_eos_token=False)
    assert found == Vocabulary(
        source=str(path),
        tokens=(*BYTE_TOKENS, "ab", "<s>"),
        types=bytes([TokenType.NORMAL] * 257 + [TokenType.CONTROL]),
        merges=("a b",),
        pre="qwen2",
        named={"bos": 257, "eos": 3, "fim_pad": 4},
        add_bos=True,
        add_eos=False,
    )


def test_what_is_not_said_has_a_meaning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = read(path, token_type=None, pre=None)
    assert found.types == bytes([TokenType.NORMAL] * 258)
    assert (found.pre, found.named, found.add_bos, found.add_eos) == ("default", {}, None, False)
    assert "'tokenizer.ggml.pre'" in caplog.text


def test_empty_tokens_get_a_text_of_their_own(path: Path) -> None:
    assert read(path, tokens=[*BYTE_TOKENS, "", ""]).tokens[256:] == ("[EMPTY_256]", "[EMPTY_257]")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "llama"}, r"tokenizer model 'llama' .* expected 'gpt2'"),
        ({"model": None}, r"'tokenizer.ggml.model'.* is missing"),
        ({"tokens": None}, r"'tokenizer.ggml.tokens' is missing"),
        ({"tokens": [1, 2]}, r"'tokenizer.ggml.tokens' is not an array of strings"),
        ({"merges": None}, r"'tokenizer.ggml.merges' is missing"),
        ({"merges": "a b"}, r"'tokenizer.ggml.merges' is not an array of strings"),
        ({"token_type": [1] * 257}, r"257 token types found for 258 tokens"),
        ({"token_type": "normal"}, r"'tokenizer.ggml.token_type' is not an array of integers"),
        ({"token_type": [1] * 256 + [7, 3]}, r"token 256 \('ab'\) has type 7, expected 1 to 6"),
        ({"token_type": [1] * 257 + [-253]}, r"token 257 \('<s>'\) has type 0, expected 1 to 6"),
        ({"bos_token_id": 258}, r"'tokenizer.ggml.bos_token_id' is 258, expected 0 to 257"),
        ({"fim_sep_token_id": 2**31}, r"'tokenizer.ggml.fim_sep_token_id' is 2147483648, expected 0 to 257"),
        ({"eos_token_id": "</s>"}, r"'tokenizer.ggml.eos_token_id' is .*expected an integer"),
        ({"add_bos_token": 1}, r"'tokenizer.ggml.add_bos_token' is .*expected a bool"),
    ],
)
def test_whatever_does_not_fit_is_refused_by_name(path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        read(path, **changes)
    assert "some.gguf" in str(caught.value)


def test_a_vocabulary_has_tokens() -> None:
    with pytest.raises(ModelError, match="empty"):
        byte_vocabulary(tokens=(), types=b"")
