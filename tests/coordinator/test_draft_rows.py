"""Rows that are taken back: whatever drafts were in the caches, later rows give the bits they give without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from emulated_device import emulated_device
from local_engine import local_engine, read
from small_models import MODELS, TEXT

from coordinator.engine import Chunk, Engine, RowError, TokenSequence
from coordinator.window import Window
from protocol.errors import RequestError
from protocol.messages import F32

RIGHT = (3, 0, 1, 6, 0, 2)
WRONG = (2, 5, 0, 1, 7, 3)
"""How many drafts of each step are right, and how many wrong ones follow; they cross blocks of 64 positions."""


def follow(engine: Engine, sequence: TokenSequence, text: Sequence[int], beside: list[Chunk]) -> F32:
    """The logits of all positions of `text`, of which the first 40 are read at once and the others by drafts."""
    logits = [engine.step([Chunk(sequence=sequence, ids=text[:40], logits="all")])[0]]
    step = 0
    while (place := sequence.position) < len(text):
        right = min(RIGHT[step % 6], len(text) - place - 1)
        wrong = min(WRONG[step % 6], sequence.room - 1 - right)
        bad = [(text[(place + right + 1 + n) % len(text)] + 1 + n) % 300 for n in range(wrong)]
        ids = [*text[place : place + 1 + right], *bad]
        found = engine.step([*beside[step : step + 1], Chunk(sequence=sequence, ids=ids, drafts=right + wrong)])[-1]
        assert len(found) == len(ids)
        assert sequence.ids == text[: place + 1]
        for token in ids[1 : 1 + right]:
            sequence.keep(token)
        logits.append(found[: 1 + right])
        step += 1
    return np.concatenate(logits)


@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_after_drafts_give_the_bits_of_those_without(
    small_model: Callable[[str], Path], name: str, kv: str
) -> None:
    with local_engine(small_model(name), kv) as engine:
        expected = read(engine, TEXT)
        sequence = engine.new_sequence(TEXT, 4)
        assert follow(engine, sequence, TEXT, []).tobytes() == expected.tobytes()
        assert sequence.ids == TEXT


@pytest.mark.parametrize("kv", ["f16", "f32"])
def test_caches_on_a_device_forget_drafts_too(small_model: Callable[[str], Path], kv: str) -> None:
    text = TEXT[:72]
    with (
        local_engine(small_model("q8_0"), kv) as here,
        local_engine(small_model("q8_0"), kv, device=emulated_device()) as there,
    ):
        found = follow(there, there.new_sequence(text, 4), text, [])
        assert found.tobytes() == read(here, text).tobytes()


def test_others_in_the_window_do_not_notice_drafts(small_model: Callable[[str], Path]) -> None:
    with local_engine(small_model("k")) as engine:
        expected = read(engine, TEXT)
        other = engine.new_sequence(TEXT, 0)
        beside = [Chunk(sequence=other, ids=TEXT[at : at + 5], logits="all") for at in range(0, 40, 5)]
        found = follow(engine, engine.new_sequence(TEXT, 4), TEXT, beside)
        assert found.tobytes() == expected.tobytes()
        assert other.ids == TEXT[:40]


@pytest.mark.parametrize(("logits", "wanted"), [("none", 0), ("last", 3), ("all", 5)])
def test_drafts_get_logits_as_the_last_known_id_does(
    small_model: Callable[[str], Path], logits: Literal["none", "last", "all"], wanted: int
) -> None:
    with local_engine(small_model("q8_0")) as engine:
        expected = read(engine, TEXT[:5])
        sequence = engine.new_sequence(TEXT[:5], 0)
        [found] = engine.step([Chunk(sequence=sequence, ids=TEXT[:5], logits=logits, drafts=2)])
        assert found.tobytes() == expected[5 - wanted :].tobytes()
        assert sequence.ids == TEXT[:3]
        with pytest.raises(ValueError, match="without empty chunks"):
            engine.step([Chunk(sequence=sequence, ids=TEXT[3:5], drafts=2)])
        with pytest.raises(RequestError, match="3 tokens do not fit behind the 3 of their sequence"):
            engine.step([Chunk(sequence=sequence, ids=TEXT[3:6], drafts=2)])


def test_a_draft_that_is_not_finite_is_named_and_nothing_is_lost(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_engine(small_model("q8_0")) as engine:
        expected = read(engine, TEXT[:8])
        sequence = engine.new_sequence(TEXT[:8], 0)
        engine.step([Chunk(sequence=sequence, ids=TEXT[:4])])
        begin = engine._dense.begin

        def spoilt(windows: Sequence[Window]) -> object:
            steps = begin(windows)
            steps[0].buffers.x[2] = np.nan  # type: ignore[attr-defined]
            return steps

        with monkeypatch.context() as patch:
            patch.setattr(engine._dense, "begin", spoilt)
            with pytest.raises(RowError, match=r"row 2 of the window \(position 6\)"):
                engine.step([Chunk(sequence=sequence, ids=TEXT[4:8], drafts=3)])
        assert sequence.ids == TEXT[:4]
        [found] = engine.step([Chunk(sequence=sequence, ids=TEXT[4:5])])
        assert found.tobytes() == expected[4:5].tobytes()
