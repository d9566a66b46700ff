"""Scaled rotary positions beside llama.cpp's and those of float64, within the original context and beyond it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from local_engine import local_engine, read
from reference_model import F64, ReferenceModel
from rope_models import POSITIONS, ROPE_MODELS, TOKENS, rope_model

STORED = Path(__file__).parents[1] / "data" / "rope-logits.npz"
"""llama.cpp's logits of each model; `rope_models.py` says how they were made."""


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, F64]]:
    """A model's file and its logits in float64."""
    folder = tmp_path_factory.mktemp("rope-models")

    def of(name: str) -> tuple[Path, F64]:
        path = rope_model(name, folder)
        return path, ReferenceModel(path).forward(TOKENS).logits[POSITIONS]

    return of


def distance(logits: F64, truth: F64) -> F64:
    found: F64 = np.linalg.norm(logits - truth, axis=1) / np.linalg.norm(truth, axis=1)
    return found


@pytest.mark.parametrize("name", ROPE_MODELS)
def test_logits_are_as_near_to_float64_as_llama_cpps(name: str, exact: Callable[[str], tuple[Path, F64]]) -> None:
    path, truth = exact(name)
    with np.load(STORED) as stored:
        theirs = distance(stored[name], truth)
    with local_engine(path) as engine:
        ours = distance(read(engine, TOKENS)[POSITIONS], truth)
    assert theirs.max() <= 2e-6, "llama.cpp means something else by these keys"
    assert ours.max() <= 1e-6
    assert np.median(ours) <= 1.05 * np.median(theirs)


@pytest.mark.parametrize("name", [name for name in ROPE_MODELS if name != "plain"])
def test_scaling_makes_a_difference_everywhere_but_at_the_first_position(
    name: str, exact: Callable[[str], tuple[Path, F64]]
) -> None:
    """All these models have the same weights."""
    apart = distance(exact(name)[1], exact("plain")[1])
    assert apart[0] < 1e-12
    assert apart[1:].min() > 1e-3
