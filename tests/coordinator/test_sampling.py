from __future__ import annotations

import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coordinator import choosing as module
from coordinator.choosing import choose
from coordinator.randomness import uniform
from coordinator.requests import sampling_of
from coordinator.sampling import SEED_LIMIT, Sampling, SamplingError
from native import exponential
from protocol.codec import decode, encode
from protocol.errors import RequestError
from protocol.messages import Submit

GOLDEN = Path(__file__).parents[1] / "data" / "sampled.json"

NUMBERS = st.one_of(
    st.floats(-30, 30, width=32),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0]),  # equals are what goes wrong
    st.just(-float("inf")),
)
LOGITS = st.lists(NUMBERS, min_size=1, max_size=40).filter(lambda row: max(row) > -float("inf"))
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1e-320, 0.01, 0.7, 1.0, 5.0, 1e30]),
    top_k=st.sampled_from([0, 1, 2, 3, 10, 39, 40, 1000]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.999999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    repeat_penalty=st.sampled_from([0.5, 1.0, 1.3]),
    repeat_window=st.sampled_from([0, 1, 3, 64]),
    seed=st.integers(0, SEED_LIMIT - 1),
)
POSITIONS = st.integers(0, 1 << 20)


def row(*numbers: float) -> NDArray[np.float32]:
    return np.array(numbers, np.float32)


def spread(size: int, peak: float) -> NDArray[np.float32]:
    """Logits from 0 to `peak` in no order, the same everywhere: integers and one division."""
    scattered = (np.arange(size, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(1 << 32)
    return (scattered.astype(np.float64) * (peak / (1 << 32))).astype(np.float32)


def weigh(differences: list[float], temperature: float) -> list[float]:
    exponents = [max(difference / temperature, -200.0) for difference in differences]
    return [float(weight) for weight in exponential(row(*exponents))]


def chosen_by_the_book(logits: list[float], recent: list[int], sampling: Sampling, position: int) -> int:
    """The seven steps of the module's page, one after the other and one number at a time."""
    values = [float(np.float32(number)) for number in logits]
    for id in set(recent[len(recent) - min(sampling.repeat_window, len(recent)) :]):
        penalty = sampling.repeat_penalty
        values[id] = values[id] / penalty if values[id] > 0 else values[id] * penalty
    by_value = sorted(range(len(values)), key=lambda id: (-values[id], id))
    if sampling.temperature == 0:
        return by_value[0]
    left = by_value[: sampling.top_k or None]
    differences = [values[id] - values[by_value[0]] for id in left]
    weights = dict(zip(left, weigh(differences, sampling.temperature), strict=True))
    if sampling.top_p < 1:
        by_weight = sorted(left, key=lambda id: (-weights[id], id))
        sums = list(itertools.accumulate(weights[id] for id in by_weight))
        left = by_weight[: 1 + next(at for at, sum in enumerate(sums) if sum >= sampling.top_p * sums[-1])]
    heaviest = max(weights[id] for id in left)
    left = sorted(id for id in left if weights[id] >= sampling.min_p * heaviest)
    ends = list(itertools.accumulate(weights[id] for id in left))
    point = uniform(sampling.seed, position) * ends[-1]
    return next(id for id, end in zip(left, ends, strict=True) if end > point)


# --- the steps --------------------------------------------------------------------------------------------------


@given(LOGITS, st.lists(st.integers(0, 39), max_size=8), SAMPLINGS, POSITIONS)
@example([0.0, -0.0, 0.0], [], Sampling(temperature=1.0, top_k=2, top_p=0.5), 0)
@example([1.0] * 40, [3], Sampling(temperature=1.0, top_k=39, top_p=0.999999, min_p=1.0, repeat_penalty=0.5), 7)
def test_the_choice_is_what_the_page_says(logits: list[float], recent: list[int], sampling: Sampling, at: int) -> None:
    recent = [id for id in recent if id < len(logits)]
    assert choose(row(*logits), recent, sampling, at) == chosen_by_the_book(logits, recent, sampling, at)


def test_the_order_of_the_steps_is_the_one_stated() -> None:
    logits = row(3.0, 2.0, 1.0, 0.0)
    heat: dict[str, Any] = {"temperature": 1.0}
    assert reachable(logits, **heat) == {0, 1, 2, 3}
    assert reachable(logits, **heat, top_k=2) == {0, 1}
    assert reachable(logits, **heat, top_p=0.7) == {0, 1}  # 0.64, 0.24, 0.09, 0.03
    assert reachable(logits, temperature=3.0, top_p=0.7) == {0, 1, 2}  # the heat comes before top-p: 0.38, 0.27, 0.20
    assert reachable(logits, temperature=3.0, top_k=3, top_p=0.7) == {0, 1}  # and so does top-k: 0.45, 0.32, 0.23
    assert reachable(logits, temperature=3.0, min_p=0.5) == {0, 1, 2}  # 1, 0.72, 0.51, 0.37
    assert reachable(logits, recent=[0, 1], repeat_penalty=1.5, temperature=1.0, top_k=2) == {0, 1}  # 2, 1.33, 1
    assert reachable(logits, recent=[0, 1], repeat_penalty=4.0, temperature=1.0, top_k=2) == {0, 2}  # 0.75, 0.5, 1


def reachable(logits: NDArray[np.float32], recent: list[int] | None = None, **settings: Any) -> set[int]:
    """Every token that some point of a grid leads to: all with a probability over 1/256."""
    with pytest.MonkeyPatch.context() as patch:
        found = set()
        for step in range(256):
            patch.setattr(module, "uniform", lambda seed, position, step=step: step / 256)
            found.add(choose(logits, recent or [], Sampling(**settings), 0))
    return found


# --- greedy -----------------------------------------------------------------------------------------------------


@given(LOGITS, st.integers(0, SEED_LIMIT - 1), POSITIONS)
def test_greedy_takes_the_first_of_the_highest(logits: list[float], seed: int, position: int) -> None:
    best = logits.index(max(logits))
    assert choose(row(*logits), [], Sampling(seed=seed), position) == best
    assert choose(row(*logits), [], Sampling(temperature=1.0, top_k=1, seed=seed), position) == best
    nucleus = choose(row(*logits), [], Sampling(temperature=1.0, top_p=1e-12, seed=seed), position)
    assert logits[nucleus] == pytest.approx(logits[best], abs=1e-6)  # nearer ones weigh the same in fp32


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, unique=True), st.randoms(use_true_random=False))
def test_greedy_follows_the_tokens_wherever_they_stand(logits: list[float], random: Any) -> None:
    order = list(range(len(logits)))
    random.shuffle(order)
    best = choose(row(*logits), [], Sampling(), 0)
    assert order[choose(row(*(logits[id] for id in order)), [], Sampling(), 0)] == best


@given(st.permutations([-2.0, -1.0, 0.0, 1.0, 2.0]), st.sampled_from([{"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}]))
@settings(max_examples=20)
def test_the_same_tokens_are_left_wherever_they_stand(logits: list[float], limits: dict[str, Any]) -> None:
    left = {logits[id] for id in reachable(row(*logits), temperature=1.0, **limits)}
    in_order = row(-2.0, -1.0, 0.0, 1.0, 2.0)
    assert left == {float(in_order[id]) for id in reachable(in_order, temperature=1.0, **limits)}


# --- the repetition penalty -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recent", "window", "expected"),
    [
        ([], 64, 0),
        ([0], 64, 1),
        ([0, 0, 0], 64, 1),  # once, however often
        ([0, 1], 64, 2),
        ([0, 1, 2], 64, 0),
        ([0, 9, 9], 2, 0),  # only the last two count
        ([9, 0, 9], 2, 1),
        ([0], 0, 0),
    ],
)
def test_recent_tokens_are_less_likely(recent: list[int], window: int, expected: int) -> None:
    logits = row(2.0, 1.9, 1.8, *[-5.0] * 7)
    sampling = Sampling(repeat_penalty=1.2, repeat_window=window)
    assert choose(logits, recent, sampling, 0) == expected
    assert choose(logits, np.array(recent, np.int32), sampling, 0) == expected  # type: ignore[arg-type]


def test_a_negative_logit_falls_too() -> None:
    assert choose(row(-1.0, -1.1), [0], Sampling(repeat_penalty=1.2), 0) == 1
    assert choose(row(-1.0, -1.1), [0], Sampling(repeat_penalty=1.05), 0) == 0


@pytest.mark.parametrize("recent", [[-1], [0, 4]])
def test_recent_ids_are_tokens(recent: list[int]) -> None:
    with pytest.raises(RequestError, match=r"recent token ids .* expected 0 to 3"):
        choose(row(1, 2, 3, 4), recent, Sampling(repeat_penalty=1.1), 0)


# --- randomness -------------------------------------------------------------------------------------------------


def test_a_choice_depends_on_seed_and_position_alone() -> None:
    logits = spread(1000, 5.0)
    sampling = Sampling(temperature=1.0, seed=7)
    chosen = [choose(logits, [], sampling, position) for position in range(50)]
    assert [choose(logits, [], sampling, position) for position in reversed(range(50))] == chosen[::-1]
    assert [choose(logits, [], Sampling(temperature=1.0, seed=8), position) for position in range(50)] != chosen
    assert len(set(chosen)) > 40


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_they_should(temperature: float) -> None:
    logits = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
    expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    draws, sampling = 8000, Sampling(temperature=temperature, seed=1)
    counts = np.bincount([choose(logits.astype(np.float32), [], sampling, at) for at in range(draws)], minlength=6)
    assert ((counts - draws * expected) ** 2 / (draws * expected)).sum() < 20.5  # chi-square, 5 degrees: 1 in 1000


def test_what_is_ruled_out_is_never_chosen() -> None:
    logits = row(-np.inf, 1.0, -np.inf, 1.0, -np.inf)
    assert reachable(logits, temperature=1.0) == {1, 3}
    assert reachable(logits, temperature=1e30, top_k=4, top_p=0.9999) == {1, 3}


def test_the_choices_are_those_they_have_always_been() -> None:
    cases = json.loads(GOLDEN.read_text())
    for case in cases:
        logits, sampling = spread(case["size"], case["peak"]), Sampling(**case["sampling"])
        ids: list[int] = []
        for position in range(len(case["ids"])):
            ids.append(choose(logits, ids, sampling, position))
        assert ids == case["ids"], case["sampling"]


# --- soundness --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=2, top_p=0.5, repeat_penalty=1.5)])
@pytest.mark.parametrize("bad", [row(1, np.nan, 2), row(np.nan), row(1, np.inf), row(-np.inf, -np.inf)])
def test_logits_that_allow_no_choice_fail_the_request(bad: NDArray[np.float32], sampling: Sampling) -> None:
    with pytest.raises(RequestError, match="position 5: the highest logit is"):
        choose(bad, [0], sampling, 5)


def test_the_logits_stay_as_they_are() -> None:
    logits = spread(100, 5.0)
    before = logits.copy()
    logits.flags.writeable = False
    choose(logits, [1, 2], Sampling(temperature=0.8, top_k=20, top_p=0.9, min_p=0.1, repeat_penalty=1.2), 0)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize(
    "settings", [{}, {"top_k": 40}, {"top_p": 0.95}, {"min_p": 0.05}, {"top_p": 0.999, "top_k": 5000}]
)
def test_a_large_vocabulary_is_as_exact_as_a_small_one(settings: dict[str, Any]) -> None:
    logits = spread(150_000, 12.0)
    sampling = Sampling(temperature=0.9, repeat_penalty=1.1, **settings)
    expected = chosen_by_the_book(logits.tolist(), [5, 6, 7], sampling, 3)
    assert choose(logits, [5, 6, 7], sampling, 3) == expected


def test_numpy_sums_from_the_first_to_the_last() -> None:
    numbers = spread(10_000, 1.0).astype(np.float64) ** 3
    assert np.cumsum(numbers).tolist() == list(itertools.accumulate(numbers.tolist()))


@pytest.mark.parametrize(
    ("name", "bad", "allowed"),
    [
        ("temperature", -0.1, "a finite number from 0"),
        ("temperature", float("nan"), "a finite number from 0"),
        ("temperature", float("inf"), "a finite number from 0"),
        ("top_k", -1, "a whole number from 0"),
        ("top_k", 1.5, "a whole number from 0"),
        ("top_k", 10**400, "a whole number from 0"),
        ("top_p", 0.0, "a number over 0 and up to 1"),
        ("top_p", 1.01, "a number over 0 and up to 1"),
        ("min_p", -0.01, "a number from 0 to 1"),
        ("min_p", 1.01, "a number from 0 to 1"),
        ("repeat_penalty", 0.0, "a finite number over 0"),
        ("repeat_penalty", float("inf"), "a finite number over 0"),
        ("repeat_window", -1, "a whole number from 0"),
        ("seed", -1, "a whole number from 0 to 9223372036854775807"),
        ("seed", SEED_LIMIT, "a whole number from 0 to 9223372036854775807"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, bad: float, allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        Sampling(**{name: bad})  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"{name} is {bad}, expected {allowed}")


def test_all_settings_out_of_range_are_told_at_once() -> None:
    with pytest.raises(SamplingError) as caught:
        Sampling(top_k=-1, top_p=2.0, seed=-3)
    assert list(caught.value.wrong) == ["top_k", "top_p", "seed"]
    assert str(caught.value).count("expected") == 3


@given(SAMPLINGS)
@example(Sampling(top_k=sys.maxsize, repeat_window=sys.maxsize, seed=SEED_LIMIT - 1))
def test_whatever_is_allowed_can_travel(sampling: Sampling) -> None:
    settings = asdict(sampling)
    submit = Submit(request="r", prompt_ids=np.zeros(1, np.int32), max_tokens=1, stop_ids=[], drafts=0, **settings)
    assert sampling_of(cast(Submit, decode([bytes(frame) for frame in encode(submit)]))) == sampling
