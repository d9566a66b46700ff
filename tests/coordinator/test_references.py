"""Our logits and tokens beside llama.cpp's and those of float64.

llama.cpp quantises activations too, in another way, so neither of us is the truth: float64 is, and llama.cpp's distance
from it is the yardstick.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_engine import greedy, local_engine, read
from numpy.typing import NDArray
from reference_model import F64, ReferenceModel

DATA = Path(__file__).parents[1] / "data"
MINI: dict[str, dict[str, Any]] = json.loads((DATA / "mini.json").read_text())
DEMO: list[dict[str, Any]] = json.loads((DATA / "demo-greedy.json").read_text())["demo-moe-q4_k_m.gguf"]

FLOAT_TYPES = ("f32", "f16", "bf16")
"""Mini models whose activations stay fp32."""

NEAR = 0.1
"""Two best logits nearer than this: which one is chosen is left to rounding. llama.cpp's own margins on the demo model
are off by 0.16 in the median and by 0.5 at the 90th percentile, ours by 0.10 and 0.29."""

MiniLogits = Callable[[str], NDArray[np.float32]]


@pytest.fixture(scope="module")
def stored() -> dict[str, NDArray[Any]]:
    """NAME.tokens and NAME.logits_f64 of each mini model."""
    with np.load(DATA / "mini-logits.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def distances(stored: dict[str, NDArray[Any]], mini_model: Callable[[str], Path]) -> Callable[[str], F64]:
    """Our relative L2 distance from float64 at each of a mini model's positions."""

    def of(name: str) -> F64:
        with local_engine(mini_model(name)) as engine:
            logits = read(engine, stored[f"{name}.tokens"].tolist())
        return _distances(logits, stored[f"{name}.logits_f64"])

    return of


@pytest.mark.parametrize("name", MINI)
def test_logits_are_about_as_near_to_float64_as_llama_cpps(name: str, distances: Callable[[str], F64]) -> None:
    found, theirs = distances(name), MINI[name]["llama_vs_f64_rel_l2"]
    assert np.median(found) <= 1.05 * theirs["median"]
    assert np.quantile(found, 0.9) <= 1.3 * theirs["p90"]


@pytest.mark.parametrize("name", FLOAT_TYPES)
def test_activations_of_unquantised_weights_are_not_quantised(name: str, distances: Callable[[str], F64]) -> None:
    assert distances(name).max() <= 2e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Text:
    """llama.cpp's greedy answer to one prompt, and how sure each of us is of each of its tokens.

    A margin is the logit of llama.cpp's token less that of the best other one: negative where another is preferred.
    """

    prompt_ids: list[int]
    ids: list[int]
    theirs: F64  # (ids,), as all margins
    exact: F64
    ours: F64
    answer: list[int]
    """Our own greedy continuation, as long as theirs."""


@pytest.fixture(scope="module")
def texts(demo_model: Path) -> list[Text]:
    """The ten prompts of the demo model."""
    reference = ReferenceModel(demo_model)
    found = []
    with local_engine(demo_model) as engine:
        for stated in DEMO:
            prompt_ids, ids = stated["prompt_ids"], stated["greedy_ids"]
            read_ids = [*prompt_ids, *ids[:-1]]
            found.append(
                Text(
                    prompt_ids=prompt_ids,
                    ids=ids,
                    theirs=np.array(stated["margins"]),
                    exact=_margins(reference.forward(read_ids).logits, ids),
                    ours=_margins(read(engine, read_ids), ids),
                    answer=greedy(engine, prompt_ids, len(ids)),
                )
            )
    return found


def test_margins_of_the_demo_model_are_nearer_to_float64_than_llama_cpps(texts: list[Text]) -> None:
    ours = np.abs(np.concatenate([text.ours - text.exact for text in texts]))
    theirs = np.abs(np.concatenate([text.theirs - text.exact for text in texts]))
    assert np.median(ours) <= 1.05 * np.median(theirs)
    assert np.quantile(ours, 0.9) <= 1.3 * np.quantile(theirs, 0.9)


def test_our_choices_are_llama_cpps_where_it_and_float64_are_sure(texts: list[Text]) -> None:
    """Along llama.cpp's texts. A router's near-tie moves a margin by more than rounding does, hence not all."""
    ours, theirs, exact = (np.concatenate([getattr(text, of) for text in texts]) for of in ("ours", "theirs", "exact"))
    sure = np.minimum(theirs, exact) >= NEAR
    assert sure.sum() > 500
    assert (ours[sure] > 0).mean() >= 0.99
    assert ((ours > 0) == (exact > 0)).mean() >= (exact > 0).mean()  # float64 agrees with us as often as with it


def test_greedy_ids_are_llama_cpps_while_it_and_float64_are_sure(texts: list[Text]) -> None:
    for text in texts:
        steps = _first(np.minimum(text.theirs, text.exact) < NEAR)
        assert text.answer[:steps] == text.ids[:steps], text.prompt_ids


@pytest.mark.xfail(
    reason="rounding of activations decides at larger margins: float64 parts from these ids in 6 texts of 10, "
    "llama.cpp itself in 3 when it runs on another processor (Zen 3), we in 8"
)
def test_greedy_ids_are_llama_cpps_up_to_its_first_margin_below_0_05(texts: list[Text]) -> None:
    for text in texts:
        steps = _first(text.theirs < 0.05)
        assert text.answer[:steps] == text.ids[:steps], text.prompt_ids


def test_float64_itself_parts_from_llama_cpp_before_its_first_margin_below_0_05(texts: list[Text]) -> None:
    """Why the test before this one cannot pass: the truth fails it too."""
    parted = [text for text in texts if _first(text.exact < 0) < _first(text.theirs < 0.05)]
    assert len(parted) == 6


def _distances(logits: NDArray[np.float32], exact: NDArray[Any]) -> F64:
    truth = exact.astype(np.float64)
    found: F64 = np.linalg.norm(logits - truth, axis=1) / np.linalg.norm(truth, axis=1)
    return found


def _first(found: NDArray[np.bool_]) -> int:
    """Index of the first True, or the length if there is none."""
    return int(found.argmax()) if found.any() else len(found)


def _margins(logits: NDArray[Any], ids: list[int]) -> F64:
    """Of the last len(ids) rows, each of which chose one of `ids`."""
    others = logits[-len(ids) :].astype(np.float64)
    steps = np.arange(len(ids))
    chosen = others[steps, ids]
    others[steps, ids] = -np.inf
    margins: F64 = chosen - others.max(axis=1)
    return margins
