"""Tokens that mean something to a program: which of them end an answer, and which are not text.

Files seldom name all of them, so llama.cpp also goes by their texts. These are its rules and its texts, without those
of vocabularies whose pre-tokenizers are not supported here.
"""

from __future__ import annotations

from collections.abc import Mapping

END_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "</s>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
)
"""Each of these ends an answer, whatever the file says of it."""

FILL_END_TEXTS = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
"""Marks of fill-in-the-middle prompts that end an answer too: of each the one that the file names, else the first."""

FILL_TEXTS = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"),
    *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"),
    *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"),
)
"""The other marks of such prompts."""


def stop_ids(ids: Mapping[str, int], named: Mapping[str, int]) -> list[int]:
    """Ascending ids of the tokens that end an answer.

    `ids` has the id of every token text, `named` those that the file names (see Vocabulary.named).
    """
    ends = {ids[text] for text in END_TEXTS if text in ids}
    ends.update(named[name] for name in ("eos", "eot", "eom") if name in named)
    for name, texts in FILL_END_TEXTS.items():
        found = [ids[text] for text in texts if text in ids]
        ends.update([named[name]] if name in named else found[:1])
    return sorted(ends)


def control_ids(ids: Mapping[str, int]) -> set[int]:
    """Ids of tokens that are control tokens by their text, whatever type the file gives them."""
    texts = {*END_TEXTS, *FILL_TEXTS, *(text for texts in FILL_END_TEXTS.values() for text in texts)}
    return {ids[text] for text in texts if text in ids}
