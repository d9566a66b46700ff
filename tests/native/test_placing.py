"""How experts are dealt out: plain Python's results, ties and zeros included, and what cannot be dealt is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import placing_twin as twin
import pytest
from hypothesis import given
from hypothesis import strategies as st

import native
from coordinator.cost import done_s, shared_out
from coordinator.pace import Pace, Paces
from coordinator.placement import Holder, Placement, own_share, place
from coordinator.plan import DEVICE, LOCAL
from coordinator.profile import F64
from coordinator.second_copies import second_copies
from coordinator.spread import NOBODY, fair_shares, spread
from protocol.messages import I64
from protocol.stock import Stock

SEEDS = st.integers(0, 2**32)
NUMBERS = st.sampled_from([(0.0,), (1.0,), (0.0, 1.0), (0.25, 0.5, 0.75), (0.1, 0.2, 0.3, 1e-9), ()])
"""What numbers are drawn from; from 0 to 1 where it is empty."""


def drawn(rng: np.random.Generator, values: tuple[float, ...], shape: tuple[int, ...]) -> F64:
    return rng.choice(values, shape) if values else rng.random(shape)


@given(SEEDS, st.integers(1, 6), st.integers(0, 20), st.sampled_from([0.0, 0.2, 0.6, 1.0]), NUMBERS, NUMBERS, NUMBERS)
def test_layers_are_dealt_as_plain_python_does(
    seed: int, members: int, experts: int, part: float, used: Any, entries: Any, calls: Any
) -> None:
    rng = np.random.default_rng(seed)
    layers = 3
    able = (rng.random((layers, experts, members)) < part).astype(np.uint8)
    use, entry_s, call_s = (
        drawn(rng, used, (layers, experts)),
        drawn(rng, entries, (members,)),
        drawn(rng, calls, (members,)),
    )
    left = rng.random((layers, experts)) < rng.choice([0.5, 1.0])
    before = rng.integers(NOBODY, members, (layers, experts)) if rng.random() < 0.7 else None
    first = rng.integers(0, members, layers)
    found = spread(able, use, entry_s, call_s, left=left, before=before, first=first)
    for layer in range(layers):
        which, turn = np.flatnonzero(left[layer]), (np.arange(members) + first[layer]) % members
        crew = twin.Crew(
            able=able[layer][which][:, turn].T.astype(np.bool_).reshape(members, len(which)),
            use=use[layer, which],
            entry_s=entry_s[turn],
            call_s=call_s[turn],
        )
        had = None if before is None else before[layer, which]
        turned = None if had is None else np.where(had == NOBODY, NOBODY, (had - first[layer]) % members)
        given_to = twin.spread(crew.able, crew, turned)
        expected = np.full(experts, NOBODY)
        expected[which] = np.where(given_to == NOBODY, NOBODY, turn[given_to])
        assert found[layer].tolist() == expected.tolist()


@given(SEEDS, st.integers(1, 12), NUMBERS, NUMBERS, st.sampled_from([0.0, 1e-300, 1.0, 77.7]))
def test_fair_shares_are_plain_pythons(seed: int, members: int, entries: Any, calls: Any, total: float) -> None:
    rng = np.random.default_rng(seed)
    entry_s, call_s = drawn(rng, entries, (members,)), drawn(rng, calls, (members,))
    assert fair_shares(total, entry_s, call_s).tobytes() == twin.fair_shares(total, entry_s, call_s).tobytes()


@st.composite
def crowds(draw: st.DrawFn, stock: Stock) -> list[Holder]:
    """Any number of holders with rooms, shares, teams and paces, in any order."""
    shape = len(stock.slot_bytes), stock.experts
    shares = SEEDS.map(lambda seed: (np.random.default_rng(seed).random(shape) < 0.6).astype(np.uint8))
    paces = st.builds(Pace, entry_s=st.sampled_from([0.0, 1.0, 1.1, 4.0]), call_s=st.sampled_from([0.0, 0.25, 1.0]))
    return [
        Holder(
            serial=serial,
            room=draw(st.one_of(st.just(-1), st.integers(0, stock.bytes))),
            memory=draw(st.one_of(st.just(-1), st.integers(0, stock.bytes))),
            able=draw(st.one_of(st.none(), shares)),
            only=draw(st.one_of(st.none(), shares)),
            pages=draw(st.sampled_from(["", "a", "b"])),
            pace=draw(st.one_of(st.none(), paces)),
        )
        for serial in draw(st.lists(st.integers(0, 99), unique=True, max_size=6))
    ]


@st.composite
def stocks(draw: st.DrawFn) -> Stock:
    sizes = draw(st.lists(st.sampled_from([0, 4, 5, 9]), min_size=1, max_size=5).filter(any))
    return Stock(slot_bytes=tuple(sizes), experts=draw(st.integers(1, 20)))


@given(st.data(), SEEDS, NUMBERS, st.sampled_from([1.1, 1.5, 2.0]))
def test_second_copies_are_plain_pythons(data: st.DataObject, seed: int, used: Any, replicas: float) -> None:
    stock, rng = data.draw(stocks()), np.random.default_rng(seed)
    holders = data.draw(crowds(stock))
    own = (rng.random((len(stock.slot_bytes), stock.experts)) < 0.1).astype(np.uint8)
    own[[not size for size in stock.slot_bytes]] = 0
    use = drawn(rng, used, own.shape)
    before: Placement | None = None
    for version in range(2):
        there = data.draw(st.permutations(holders))
        placement = place(version, stock, own, there, use=use, before=before, replicas=replicas)
        ours = second_copies(placement.owner, stock, there, use, replicas, before)
        theirs = twin.second_copies(placement.owner, stock, there, use, replicas, before)
        np.testing.assert_array_equal(ours, theirs)
        before = placement


@given(st.data(), st.one_of(st.none(), SEEDS))
def test_who_has_little_room_is_dealt_to_as_plain_python_does(data: st.DataObject, seed: int | None) -> None:
    stock = data.draw(stocks())
    holders = [one for one in data.draw(crowds(stock)) if one.room >= 0]
    shape = len(stock.slot_bytes), stock.experts
    rank = None if seed is None else np.random.default_rng(seed).permutation(np.prod(shape)).reshape(shape)
    rank = None if rank is None else rank.astype(np.int32)
    owner: I64 = np.full(shape, LOCAL, np.int64)
    slots = [Holder(serial=DEVICE, room=stock.bytes // 3)]
    twin.deal(owner, stock, slots, rank)
    own = own_share(stock, stock.bytes // 3, rank)
    np.testing.assert_array_equal(own, owner == DEVICE)
    twin.deal(owner, stock, holders, rank)
    np.testing.assert_array_equal(place(1, stock, own, holders, rank).owner, owner)


@given(SEEDS, st.integers(0, 6), st.integers(1, 8), st.integers(0, 4), NUMBERS, NUMBERS)
def test_sampled_rows_are_shared_out_as_plain_python_does(
    seed: int, members: int, experts: int, samples: int, entries: Any, calls: Any
) -> None:
    rng = np.random.default_rng(seed)
    paces = Paces(
        serials=np.arange(-2, members, dtype=np.int64),
        entry_s=drawn(rng, entries, (members + 2,)),
        call_s=drawn(rng, calls, (members + 2,)),
        send_s=float(rng.choice([0.0, 0.1])),
    )
    able = rng.random((experts, members + 2)) < 0.4
    able[np.arange(experts), rng.integers(0, members + 2, experts)] = True
    ids = rng.integers(0, experts, (samples, 3)).astype(np.int32)
    ours, theirs = shared_out(ids, able, paces), twin.shared_out(ids, able, paces)
    np.testing.assert_array_equal(ours, theirs)
    assert done_s(ours, paces).tobytes() == twin.done_s(theirs, paces).tobytes()


@given(st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 4)), SEEDS)
def test_swaps_are_plain_pythons(shape: tuple[int, int, int], seed: int) -> None:
    layers, experts, holders = shape
    rng = np.random.default_rng(seed)
    able = (rng.random(shape) < rng.random()).astype(np.uint8)
    owner, before = (rng.integers(-1, holders, (layers, experts)) for _ in range(2))
    np.testing.assert_array_equal(native.swapped(owner, before, able), twin.swapped(owner, before, able))


# --- what cannot be -------------------------------------------------------------------------------------------------


def two(*shape: int) -> I64:
    return np.zeros(shape, np.int64)


CALLS: dict[Callable[..., Any], dict[str, Any]] = {
    native.spread: {
        "able": np.ones((1, 3, 2), np.uint8),
        "left": np.ones((1, 3), np.uint8),
        "use": np.ones((1, 3)),
        "total": np.ones(1),
        "entry_s": np.ones(2),
        "call_s": np.ones(2),
        "before": two(1, 3),
        "first": two(1),
    },
    native.fair_shares: {"total": 1.0, "entry_s": np.ones(2), "call_s": np.ones(2)},
    native.deal: {
        "order": two(3, 2),
        "turn": two(3),
        "slot_bytes": two(1),
        "room": two(2),
        "choice": two(2),
        "able": np.ones((1, 3, 2), np.uint8),
        "evenly": True,
    },
    native.swapped: {"owner": two(1, 3), "before": two(1, 3), "able": np.ones((1, 3, 2), np.uint8)},
    native.second_copies: {
        "owner": two(1, 3),
        "before": two(1, 3),
        "serials": np.arange(2),
        "team": two(2),
        "room": two(2),
        "slot_bytes": two(1),
        "entry_s": np.ones(2),
        "able": np.ones((1, 3, 2), np.uint8),
        "use": np.ones((1, 3)),
        "busy_s": np.ones((1, 2)),
        "first": two(1),
        "count": 1,
    },
    native.shared_out: {
        "ids": np.zeros((1, 2), np.int32),
        "able": np.ones((3, 2), np.uint8),
        "entry_s": np.ones(2),
        "call_s": np.ones(2),
    },
    native.done_s: {
        "entries": two(1, 2),
        "entry_s": np.ones(2),
        "call_s": np.ones(2),
        "send_s": 0.0,
        "first_member": 2,
    },
}
ARRAYS = [
    (call, name) for call, sound in CALLS.items() for name, value in sound.items() if isinstance(value, np.ndarray)
]
FREE = {
    (native.deal, "able", 1),
    (native.swapped, "able", 2),
    (native.shared_out, "able", 0),
    (native.shared_out, "ids", 0),
    (native.shared_out, "ids", 1),
    (native.done_s, "entries", 0),
}
"""Axes that may be longer, or shorter, by themselves."""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_what_is_sound_is_taken(call: Callable[..., Any]) -> None:
    assert call(**CALLS[call]).size


@pytest.mark.parametrize(("call", "name"), ARRAYS, ids=lambda one: getattr(one, "__name__", one))
def test_an_array_of_another_shape_is_refused(call: Callable[..., Any], name: str) -> None:
    sound = CALLS[call][name]
    for axis in range(sound.ndim):
        if (call, name, axis) not in FREE:
            with pytest.raises(ValueError, match="expected"):
                call(**{**CALLS[call], name: np.repeat(sound, 2, axis)})
    with pytest.raises(TypeError):
        call(**{**CALLS[call], name: sound[None]})


@pytest.mark.parametrize(
    ("call", "name"),
    [(call, name) for call, name in ARRAYS if CALLS[call][name].dtype == np.float64 and call is not native.done_s],
    ids=lambda one: getattr(one, "__name__", one),
)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e31])
def test_numbers_without_bounds_are_refused(call: Callable[..., Any], name: str, wrong: float) -> None:
    array = CALLS[call][name].copy()
    array.flat[-1] = wrong
    with pytest.raises(ValueError, match=f"{name}: numbers of at most 1e30 expected"):
        call(**{**CALLS[call], name: array})


@pytest.mark.parametrize(
    ("call", "name", "wrong", "said"),
    [
        (native.spread, "before", 2, "before: a member that is not there"),
        (native.spread, "before", -2, "before: a member that is not there"),
        (native.spread, "first", 2, "first: a member that is not there"),
        (native.spread, "first", -1, "first: a member that is not there"),
        (native.deal, "order", 3, "order: an expert that is not there"),
        (native.deal, "order", -1, "order: an expert that is not there"),
        (native.deal, "turn", -1, "turn: 0 or more expected"),
        (native.deal, "slot_bytes", -1, "slot_bytes: 0 or more expected, found -1"),
        (native.second_copies, "owner", 2, "owner: a holder that is not there"),
        (native.second_copies, "serials", 0, "serials: each once expected"),
        (native.second_copies, "slot_bytes", -1, "slot_bytes: 0 or more expected, found -1"),
        (native.second_copies, "first", 2, "first: a holder that is not there"),
        (native.shared_out, "ids", 3, "ids: an expert that is not there"),
        (native.shared_out, "ids", -1, "ids: an expert that is not there"),
    ],
)
def test_whoever_is_not_there_is_refused(call: Callable[..., Any], name: str, wrong: int, said: str) -> None:
    array = CALLS[call][name].copy()
    array.flat[-1] = wrong
    with pytest.raises(ValueError, match=said):
        call(**{**CALLS[call], name: array})


def test_an_expert_that_nobody_has_cannot_be_shared_out() -> None:
    able = np.array([[1, 1], [0, 0], [1, 0]], np.uint8)
    with pytest.raises(ValueError, match="able: somebody for each expert expected"):
        native.shared_out(**{**CALLS[native.shared_out], "able": able})
