r"""How a model's tokenizer cuts text into words before it merges bytes, by the name that the file gives.

The expressions are facts about the models. They have the form in which llama.cpp reads them, because that is what
the authors of the files tested: contractions are spelled out, since `(?i:'s)` would also match a long s. `\s`, `\p{L}`
(letters), `\p{M}` (marks), `\p{N}` (numbers) and `\p{P}` (punctuation) are Unicode's.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import ModelError

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreTokenizer:
    """What the value of `tokenizer.ggml.pre` stands for."""

    patterns: tuple[str, ...]
    """Each match of the first is a word, and so is what lies between; the second cuts those words again, and so on."""
    ignore_merges: bool = False
    """A word that is a token is taken whole, even if the merges would not lead there."""
    add_bos: bool = False
    """Texts start with the BOS token, unless the file says otherwise."""


_QWEN2 = PreTokenizer(
    patterns=(rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",)
)
_QWEN35 = PreTokenizer(
    patterns=(
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}",
    )
)
_LLAMA3 = PreTokenizer(
    patterns=(rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",),
    ignore_merges=True,
    add_bos=True,
)

PRE_TOKENIZERS = {
    "default": PreTokenizer(patterns=(r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "deepseek-r1-qwen": _QWEN2,
    "gpt-2": PreTokenizer(patterns=(_GPT2,)),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "megrez": _QWEN2,
    "olmo": PreTokenizer(patterns=(_GPT2,)),
    "qwen2": _QWEN2,
    "qwen35": _QWEN35,
}
"""By the value of `tokenizer.ggml.pre`."""


def pre_tokenizer(source: str, name: str) -> PreTokenizer:
    """The one of that name. ModelError, which starts with `source`, if it is not known."""
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        raise ModelError(
            f"{source}: pre-tokenizer {name!r} (key 'tokenizer.ggml.pre') is not supported, "
            f"expected one of: {', '.join(PRE_TOKENIZERS)}"
        )
    return found
