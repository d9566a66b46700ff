"""What a token is expected to take: by hand for small cases, beside a plain loop for others, and what limits it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cost import done_s, expected, holders_of, shared_out
from coordinator.pace import Pace, Paces
from coordinator.placement import Holder, place
from coordinator.plan import DEVICE, LOCAL
from coordinator.sampled_rows import expected_use, sampled_rows
from protocol.messages import I32
from protocol.stock import Stock

LOCAL_PACE = Pace(entry_s=4.0)


def paces(*members: Pace, send_s: float = 0.0) -> Paces:
    """Of members 0, 1, and so on."""
    return Paces.of(dict(enumerate(members)), local=LOCAL_PACE, device=Pace(entry_s=0.5, call_s=1.0), send_s=send_s)


def test_a_holder_is_done_after_its_call_and_entries_and_those_before_it_were_sent() -> None:
    mesh = paces(Pace(entry_s=1.0, call_s=10.0), Pace(entry_s=2.0, call_s=20.0), send_s=0.25)
    entries = np.array([[1, 2, 3, 4], [0, 0, 0, 1], [2, 0, 0, 0]])
    assert done_s(entries, mesh).tolist() == [
        [0.5 + 4.0, 0.5 + 1.0 + 1.0, 0.25 + 10 + 3, 0.5 + 20 + 8],
        [0.0, 0.0, 0.0, 0.25 + 20 + 2],
        [8.0, 0.0, 0.0, 0.0],
    ]


def test_a_layer_waits_for_its_last_holder_and_what_that_was_doing_limits_it() -> None:
    stock = Stock(slot_bytes=(0, 1), experts=4)
    holders = [Holder(serial=0, room=-1), Holder(serial=1, room=-1)]
    placement = place(1, stock, np.zeros((2, 4), np.uint8), holders)
    assert placement.owner[1].tolist() == [1, 0, 1, 0]
    mesh = paces(Pace(entry_s=1.0, call_s=10.0), Pace(entry_s=8.0, call_s=1.0), send_s=0.25)
    rows = np.array([[[0, 1], [0, 1]], [[0, 2], [1, 3]]], np.int32)
    found = expected(placement, stock, rows, mesh, dense_s=3.0)
    assert found.layer_s.tolist() == [0.0, ((0.25 + 1 + 16) + (0.25 + 10 + 2)) / 2]
    assert found.token_s == 3.0 + found.layer_s[1]
    assert found.limits == {"dense": 3.0, "sending": 0.25, "calls": 5.5, "kernels": 9.0}
    assert found.limit == "kernels"
    assert [found.last_of(serial) for serial in (LOCAL, DEVICE, 0, 1, 99)] == [0.0, 0.0, 12.25 / 2, 17.25 / 2, 0.0]


def test_of_those_who_can_each_entry_goes_to_whoever_is_done_first() -> None:
    mesh = paces(Pace(entry_s=1.0), Pace(entry_s=3.0))
    able = np.array([[0, 0, 1, 1]] * 4 + [[0, 0, 0, 1]] + [[1, 0, 0, 0]], np.bool_)
    ids = np.array([[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 4, 5]], np.int32)
    assert shared_out(ids, able, mesh).tolist() == [[0, 0, 3, 1], [0, 0, 3, 1], [1, 0, 2, 1]]


def test_only_who_holds_an_expert_is_asked_for_it_though_some_have_a_second_holder() -> None:
    stock = Stock(slot_bytes=(1,), experts=6)
    placement = place(
        1, stock, np.zeros((1, 6), np.uint8), [Holder(serial=one, room=-1) for one in range(3)], replicas=1.5
    )
    assert (placement.also != LOCAL).sum() == 3
    able = holders_of(placement, [0], paces(*[Pace(entry_s=1.0)] * 3))[0]
    for expert, row in enumerate(able):
        who = {int(placement.owner[0, expert]), int(placement.also[0, expert])} - {LOCAL}
        assert [number - 2 for number in np.flatnonzero(row)] == sorted(who), (
            "columns 0 and 1 are the coordinator's own"
        )


def test_a_team_may_compute_whatever_one_of_it_owns() -> None:
    stock = Stock(slot_bytes=(1,), experts=3)
    holders = [Holder(serial=0, room=-1, pages="a"), Holder(serial=1, room=-1), Holder(serial=2, room=-1, pages="a")]
    placement = place(1, stock, np.array([[0, 0, 0]], np.uint8), holders)
    able = holders_of(placement, [0], paces(*[Pace(entry_s=1.0)] * 3))[0]
    assert placement.owner.tolist() == [[0, 1, 2]]
    assert able[:, 2:].tolist() == [[True, False, True], [False, True, False], [True, False, True]]


def test_a_holder_without_a_pace_is_named() -> None:
    stock = Stock(slot_bytes=(1,), experts=2)
    placement = place(1, stock, np.zeros((1, 2), np.uint8), [Holder(serial=0, room=-1), Holder(serial=7, room=-1)])
    with pytest.raises(ValueError, match=r"also of \[7\] expected"):
        holders_of(placement, [0], paces(Pace(entry_s=1.0)))


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 5))
def test_all_samples_at_once_are_what_a_plain_loop_gives(seed: int, members: int, chosen: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = paces(*(Pace(entry_s=float(rng.random()), call_s=float(rng.random())) for _ in range(members)))
    able = rng.random((8, members + 2)) < 0.4
    able[np.arange(8), rng.integers(0, members + 2, 8)] = True
    ids = np.array([rng.permutation(8)[:chosen] for _ in range(5)], np.int32)
    entries = shared_out(ids, able, mesh)
    for row, ours in zip(ids.tolist(), entries.tolist(), strict=True):
        assert one_by_one(row, able, mesh) == ours


def one_by_one(row: list[int], able: np.ndarray, mesh: Paces) -> list[int]:
    entries = [0] * len(mesh.serials)
    for expert in sorted(row, key=lambda expert: able[expert].sum() > 1):
        can = np.flatnonzero(able[expert]).tolist()
        entries[min(can, key=lambda at: mesh.call_s[at] + (entries[at] + 1) * mesh.entry_s[at])] += 1
    return entries


def test_columns_are_the_local_bank_the_device_and_members_ascending() -> None:
    mesh = Paces.of({5: Pace(entry_s=5.0), 3: Pace(entry_s=3.0)}, local=LOCAL_PACE)
    assert mesh.serials.tolist() == [LOCAL, DEVICE, 3, 5]
    assert mesh.entry_s.tolist() == [4.0, 0.0, 3.0, 5.0]
    assert Pace(entry_s=2.0, call_s=1.0).seconds(3) == 7.0


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_sampled_rows_have_distinct_experts_by_use_and_a_seed_repeats_them(seed: int, chosen: int) -> None:
    uses = np.random.default_rng(seed).random((3, 8)) ** 4 * 1000
    rows = sampled_rows(uses, chosen, 200, seed)
    assert rows.shape == (3, 200, chosen)
    assert rows.dtype == np.int32
    assert (np.diff(rows, axis=2) > 0).all()
    np.testing.assert_array_equal(rows, sampled_rows(uses, chosen, 200, seed))
    assert drawn(rows)[0, uses[0].argmax()] >= drawn(rows)[0, uses[0].argmin()]


def drawn(rows: I32) -> np.ndarray:
    return np.stack([np.bincount(layer.ravel(), minlength=8) for layer in rows])


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_expected_use_is_one_row_of_experts_in_each_layer(seed: int, chosen: int) -> None:
    uses = np.random.default_rng(seed).random((3, 8)) ** 9 * 1e6
    share = expected_use(uses, chosen)
    np.testing.assert_allclose(share.sum(axis=1), chosen)
    assert share.max() <= 1.0
    assert (np.diff(share[0][np.argsort(uses[0])]) >= -1e-9).all()


def test_a_row_cannot_have_more_experts_than_there_are() -> None:
    with pytest.raises(ValueError, match="9 experts for a row, 1 to 8 expected"):
        sampled_rows(np.zeros((1, 8)), 9, 1)
