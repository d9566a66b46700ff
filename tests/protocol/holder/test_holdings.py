"""Sets of experts by version, and how they are made ready."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ExpertError
from protocol.holder.holdings import Holdings, prepare
from protocol.messages import I32, NO_RANK, U8, Assign, AssignFailed, AssignProgress, AssignReady

SHAPE = (3, 4)


def held(*pairs: tuple[int, int]) -> U8:
    made = np.zeros(SHAPE, np.uint8)
    for layer, expert in pairs:
        made[layer, expert] = 1
    return made


class Preparer:
    """Notes what it is asked for; fails in one layer if told to."""

    def __init__(self, fails_in: int = -1) -> None:
        self.asked: list[tuple[int, int]] = []
        self.room_for: list[tuple[U8, U8 | None]] = []
        self.ranks: list[I32 | None] = []
        self._fails_in = fails_in

    def make_room(self, wanted: U8, in_force: U8 | None, rank: I32 | None) -> None:
        self.room_for.append((wanted, in_force))
        self.ranks.append(rank)

    def prepare(self, layer: int, experts: np.ndarray) -> Iterator[None]:
        for expert in experts.tolist():
            self.asked.append((layer, expert))
            if layer == self._fails_in:
                raise ExpertError(layer, 1, "the disk is gone")
            yield


def test_the_version_in_force_outlives_any_number_of_assignments() -> None:
    holdings = Holdings()
    for version in range(2, 100):
        holdings.add(Assign(placement=version, in_force=2, held=held((0, version % 4)), rank=NO_RANK))
    in_force, latest = holdings.get(2), holdings.get(99)
    assert in_force is not None
    assert latest is not None
    assert in_force[0].tolist() == [0, 0, 1, 0]
    assert latest[0].tolist() == [0, 0, 0, 1]


@given(st.lists(st.booleans(), max_size=30))
def test_what_the_coordinator_may_name_is_known_and_nothing_else(switched: list[bool]) -> None:
    holdings, in_force = Holdings(), 0
    for version, switches in enumerate(switched, start=1):
        holdings.add(Assign(placement=version, in_force=in_force, held=held(), rank=NO_RANK))
        known = {one for one in range(version + 1) if holdings.get(one) is not None}
        assert known == {in_force, version} - {0}
        in_force = version if switches else in_force


def test_a_set_is_changed_by_replacing_it_under_its_version_alone() -> None:
    holdings = Holdings()
    holdings.add(Assign(placement=5, in_force=0, held=held((0, 1)), rank=NO_RANK))
    holdings.add(Assign(placement=6, in_force=5, held=held((0, 1), (2, 0)), rank=NO_RANK))
    before = holdings.get(6)
    holdings.hold(6, 2, 3)
    holdings.let_go(6, 2, 0)
    after, other = holdings.get(6), holdings.get(5)
    assert before is not None
    assert after is not None
    assert other is not None
    assert before.tolist() == held((0, 1), (2, 0)).tolist()
    assert after.tolist() == held((0, 1), (2, 3)).tolist()
    assert other.tolist() == held((0, 1)).tolist()
    assert holdings.any_holds(2).tolist() == [0, 0, 0, 1]
    assert holdings.residency == 4


def test_preparing_reports_each_layer_and_then_the_end() -> None:
    holdings, bank = Holdings(), Preparer()
    assigned = held((0, 1), (2, 0), (2, 3))
    steps = prepare(Assign(placement=5, in_force=0, held=assigned, rank=NO_RANK), SHAPE, bank, holdings)
    assert next(steps) is None, "beats may be due within a layer"
    first = next(steps)
    assert isinstance(first, AssignProgress)
    assert (first.placement, first.done, first.total) == (5, 1, 3)
    assert bank.asked == [(0, 1)]
    assert holdings.get(5) is None
    *progress, last = filter(None, steps)
    assert [message.done for message in progress if isinstance(message, AssignProgress)] == [2, 3]
    assert isinstance(last, AssignReady)
    assert (last.placement, last.experts) == (5, 3)
    assert bank.asked == [(0, 1), (2, 0), (2, 3)]
    assert holdings.get(5) is not None


def test_a_version_is_known_before_it_is_reported_ready() -> None:
    holdings = Holdings()
    for message in prepare(Assign(placement=5, in_force=0, held=held(), rank=NO_RANK), SHAPE, Preparer(), holdings):
        if isinstance(message, AssignReady):
            assert holdings.get(5) is not None


@pytest.mark.parametrize("shape", [(2, 4), (3, 5), (0, 0), (4, 3)])
def test_a_set_for_another_model_is_refused_with_both_shapes(shape: tuple[int, int]) -> None:
    holdings, bank = Holdings(), Preparer()
    [only] = prepare(
        Assign(placement=5, in_force=0, held=np.zeros(shape, np.uint8), rank=NO_RANK), SHAPE, bank, holdings
    )
    assert isinstance(only, AssignFailed)
    assert str(shape) in only.reason
    assert str(SHAPE) in only.reason
    assert not bank.asked
    assert holdings.get(5) is None


def test_a_failure_ends_it_with_the_reason() -> None:
    holdings, bank = Holdings(), Preparer(fails_in=1)
    assigned = held((0, 0), (1, 1), (2, 2))
    *_, last = prepare(Assign(placement=5, in_force=0, held=assigned, rank=NO_RANK), SHAPE, bank, holdings)
    assert isinstance(last, AssignFailed)
    assert last.reason == "layer 1, expert 1: the disk is gone"
    assert len(bank.asked) == 2
    assert holdings.get(5) is None


def test_a_layer_is_made_ready_in_pieces() -> None:
    bank, assigned = Preparer(), np.ones((1, 3), np.uint8)
    messages = list(
        prepare(Assign(placement=5, in_force=0, held=assigned, rank=NO_RANK), assigned.shape, bank, Holdings())
    )
    assert [type(message).__name__ for message in messages] == [*["NoneType"] * 3, "AssignProgress", "AssignReady"]


def test_there_must_be_room_for_the_new_set_and_the_one_in_force() -> None:
    holdings, bank = Holdings(), Preparer()
    before = Assign(placement=5, in_force=0, held=held((0, 1)), rank=NO_RANK)
    holdings.add(before)
    first = Assign(placement=6, in_force=5, held=held((0, 2)), rank=NO_RANK)
    list(prepare(first, SHAPE, bank, holdings))
    list(prepare(Assign(placement=7, in_force=0, held=held(), rank=NO_RANK), SHAPE, bank, holdings))
    (wanted, in_force), (_, nothing) = bank.room_for
    assert wanted is first.held
    assert in_force is before.held
    assert nothing is None


def test_a_bank_is_told_which_experts_are_used_most_if_that_is_known() -> None:
    bank, rank = Preparer(), np.arange(12, dtype=np.int32).reshape(SHAPE)
    for version, known in enumerate((rank, NO_RANK), start=1):
        list(prepare(Assign(placement=version, in_force=0, held=held(), rank=known), SHAPE, bank, Holdings()))
    assert bank.ranks[0] is rank
    assert bank.ranks[1] is None


def test_what_is_held_from_before_counts_until_something_is_ready() -> None:
    assert Holdings().held.shape == (0, 0)
    holdings = Holdings(held((0, 1)))
    np.testing.assert_array_equal(holdings.held, held((0, 1)))
    assert holdings.get(1) is None, "it is held under no version"
    holdings.add(Assign(placement=1, in_force=0, held=held((2, 3)), rank=NO_RANK))
    np.testing.assert_array_equal(holdings.held, held((2, 3)))


def test_what_any_version_has_is_held() -> None:
    holdings = Holdings()
    holdings.add(Assign(placement=1, in_force=0, held=held((0, 1), (1, 1)), rank=NO_RANK))
    holdings.add(Assign(placement=2, in_force=1, held=held((2, 3)), rank=NO_RANK))
    np.testing.assert_array_equal(holdings.held, held((0, 1), (1, 1), (2, 3)))
    holdings.add(Assign(placement=3, in_force=2, held=held((2, 3)), rank=NO_RANK))
    holdings.hold(3, 2, 0)
    np.testing.assert_array_equal(holdings.held, held((2, 3), (2, 0)))
