"""What hints were worth, told by what became of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_worker.hints import FIRST_PAUSE, HORIZON, JUDGED, LONGEST_PAUSE, MAX_DISPLACED, Gate, HintBook
from protocol.messages import I32, U8

OUTCOMES = ("useful", "late", "wasted")


def ids(experts: Sequence[int]) -> I32:
    return np.array(sorted(experts), np.int32)


def mask(experts: Sequence[int], missing: Sequence[int]) -> U8:
    return np.isin(ids(experts), missing).astype(np.uint8)


class Worker:
    """A book, and steps whose layers ask one after the other."""

    def __init__(self) -> None:
        self.book = HintBook()
        self.step = 0

    def want(self, layer: int, experts: Sequence[int], missing: Sequence[int], step: int | None = None) -> list[int]:
        at = self.step if step is None else step
        wanted: list[int] = self.book.want(layer, ids(experts), mask(experts, missing), at, 1.0).tolist()
        return wanted

    def asked(self, layer: int, experts: Sequence[int], missing: Sequence[int] = (), now: float = 2.0) -> None:
        self.book.asked(layer, ids(experts), mask(experts, missing), self.step, now)

    def counts(self, *names: str) -> list[int]:
        stats = self.book.stats()
        return [stats[name] for name in names]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_only_what_is_missing_is_wanted(worker: Worker) -> None:
    assert worker.want(1, [2, 5, 7], [5, 7]) == [5, 7]
    assert worker.counts("hinted") == [2]
    assert worker.want(1, [5, 8], [5, 8]) == [8]  # 5 is on its way


def test_each_hint_comes_to_one_end(worker: Worker) -> None:
    worker.want(1, [2, 5, 7], [2, 5, 7])
    worker.asked(1, [2, 5, 9], missing=[5, 9], now=1.25)
    assert worker.counts("useful", "late", "wasted", "missed", "late_us") == [1, 1, 1, 1, 250_000]
    worker.step += 1
    worker.asked(1, [2, 5, 9])
    assert worker.counts("useful", "late", "wasted", "missed") == [1, 1, 1, 1]


def test_a_hint_that_came_behind_its_message_is_stale(worker: Worker) -> None:
    worker.asked(1, [2])
    assert worker.want(1, [3], [3]) == []
    assert worker.counts("stale", "hinted") == [1, 0]


def test_a_hint_for_a_later_step_waits_for_it(worker: Worker) -> None:
    worker.want(1, [3, 4], [3, 4], step=1)
    worker.asked(1, [4])  # of step 0
    assert worker.counts("useful", "wasted") == [1, 0]
    worker.step = 1
    worker.asked(1, [3])
    assert worker.counts("useful", "wasted") == [2, 0]


@pytest.mark.parametrize("between", range(HORIZON + 3))
def test_a_hint_counts_for_three_layer_changes(worker: Worker, between: int) -> None:
    worker.want(9, [1], [1])
    for layer in range(between):
        worker.asked(layer, [0])
        worker.asked(layer, [0])  # the same again is no change
    worker.asked(9, [1])
    in_time = between + 1 <= HORIZON
    assert worker.counts("useful", "wasted") == [int(in_time), int(not in_time)]


def test_harm_is_told_of_the_layer_whose_hint_did_it(worker: Worker) -> None:
    worker.book.displaced(4, 7, by_layer=2)
    worker.book.displaced(4, 8, by_layer=2)
    worker.book.displaced(4, 9, by_layer=2)
    worker.asked(4, [7, 8], missing=[7])  # 8 has been read again
    worker.asked(4, [7, 8], missing=[7, 8])
    assert worker.counts("harmful") == [1]
    assert {layer: one["harmful"] for layer, one in worker.book.by_layer().items()} == {2: 1, 4: 0}


def test_what_was_displaced_long_ago_is_forgotten(worker: Worker) -> None:
    for expert in range(MAX_DISPLACED + 1):
        worker.book.displaced(4, expert, by_layer=2)
    worker.asked(4, [0, 1], missing=[0, 1])
    assert worker.counts("harmful") == [1]


def test_a_new_session_forgets_what_waits_and_keeps_the_scores(worker: Worker) -> None:
    worker.step = 70
    worker.want(1, [2], [2])
    worker.asked(1, [2])
    worker.step = 71
    worker.want(1, [3], [3])
    worker.book.new_session()
    worker.step = 0
    assert worker.want(1, [3], [3]) == [3]
    assert worker.counts("hinted", "useful", "wasted") == [3, 1, 0]


def steps(worker: Worker, count: int, right: int, layer: int = 1) -> None:
    """Steps with four hints each, so many of them right; all bytes are always missing."""
    for _ in range(count):
        worker.step += 1
        worker.want(layer, [0, 1, 2, 3], [0, 1, 2, 3])
        worker.asked(layer, [*range(right), *range(10, 14 - right)])


def test_hints_that_pay_stay_on_and_random_ones_are_turned_off(worker: Worker) -> None:
    steps(worker, 1000, right=3, layer=1)
    steps(worker, 1000, right=0, layer=2)
    layers = worker.book.by_layer()
    assert (layers[1]["closed"], layers[1]["gated"], layers[1]["hinted"]) == (0, 0, 4000)
    assert layers[2]["closed"] >= 2
    assert layers[2]["gated"] > 3 * layers[2]["hinted"]
    assert worker.counts("off") == [layers[2]["off"]]


@pytest.mark.parametrize(("share", "pays"), [(1.0, False), (0.25, True)])
def test_one_of_a_team_knows_that_others_are_asked_too(share: float, pays: bool) -> None:
    """Four workers, of whose eight hints six are right: each is asked for one or two of them."""
    book, named = HintBook(), list(range(8))
    for step in range(100):
        book.want(1, ids(named), mask(named, named), step, 0.0)
        book.asked(1, ids([step % 6, 9]), mask([step % 6, 9], []), step, 1.0, share=share)
    assert (book.stats()["closed"] == 0) == pays


def test_a_gate_waits_longer_each_time_and_is_bounded() -> None:
    gate, pauses = Gate(), []
    for _ in range(20):
        for _ in range(JUDGED - 1):
            assert not gate.score(0.0, 1.0)
        assert gate.score(0.0, 1.0)
        waited = 0
        while not gate.open:
            gate.message()
            waited += 1
        pauses.append(waited)
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    for _ in range(JUDGED):
        gate.score(1.0, 0.0)
    for _ in range(JUDGED):
        gate.score(0.0, 1.0)
    assert not gate.open
    for _ in range(FIRST_PAUSE):  # what was sound for once is trusted again
        gate.message()
    assert gate.open


LAYERS, EXPERTS = 3, 6
SETS = st.sets(st.integers(0, EXPERTS - 1))
EVENTS = st.one_of(
    st.tuples(st.just("want"), st.integers(0, LAYERS - 1), SETS, SETS, st.integers(0, 2)),
    st.tuples(st.just("asked"), st.integers(0, LAYERS - 1), SETS, SETS, st.integers(0, 1)),
    st.tuples(st.just("displaced"), st.integers(0, LAYERS - 1), SETS, SETS, st.integers(0, LAYERS - 1)),
)


@given(st.lists(EVENTS, max_size=60))
def test_every_hint_is_counted_once_whatever_happens(events: list[tuple[str, int, set[int], set[int], int]]) -> None:
    worker, wanted, displaced = Worker(), 0, 0
    for kind, layer, experts, missing, number in events:
        given_ids = sorted(experts)
        if kind == "want":
            named = worker.want(layer, given_ids, sorted(missing), step=worker.step + number)
            assert set(named) <= experts & missing
            wanted += len(named)
        elif kind == "asked":
            worker.step += number
            worker.asked(layer, given_ids, sorted(missing))
        else:
            for expert in given_ids:
                worker.book.displaced(layer, expert, by_layer=number)
                displaced += 1
        stats = worker.book.stats()
        assert stats["hinted"] == wanted
        assert sum(stats[name] for name in OUTCOMES) <= wanted
        assert stats["harmful"] <= displaced
    for layer in range(LAYERS):  # one message more of each, and nothing is left open
        worker.step += 3
        worker.asked(layer, [])
    stats = worker.book.stats()
    assert sum(stats[name] for name in OUTCOMES) == wanted
    by_layer = worker.book.by_layer()
    assert all(
        sum(one[name] for one in by_layer.values()) == stats[name]
        for name in stats
        if name not in ("late_us", "following")
    )
