"""What is staged, for how long, and what is held meanwhile: pure, beside a simple model of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from message_examples import stage_exchange

from protocol.holder.exchanges import ExchangeError, Exchanges, why_not
from protocol.holder.holdings import Holdings
from protocol.messages import MAX_STAGED, NO_RANK, U8, Assign

LAYERS, EXPERTS = 2, 6
PLACEMENT = 4


def held(*pairs: tuple[int, int], experts: int = EXPERTS) -> U8:
    made = np.zeros((LAYERS, experts), np.uint8)
    for layer, expert in pairs:
        made[layer, expert] = 1
    return made


def assignment(placement: int, of: U8, in_force: int = 0) -> Assign:
    return Assign(placement=placement, in_force=in_force, held=of, rank=NO_RANK)


def holding(of: U8) -> tuple[Holdings, Exchanges]:
    """Of one that was assigned this, as PLACEMENT."""
    holdings = Holdings()
    exchanges = Exchanges(holdings)
    exchanges.assign(PLACEMENT)
    holdings.add(assignment(PLACEMENT, of))
    return holdings, exchanges


def first() -> tuple[Holdings, Exchanges]:
    """Experts 0 and 1 of layer 1 are held."""
    return holding(held((1, 0), (1, 1)))


def stage(exchanges: Exchanges, number: int = 7, now: float = 0.0, **changes: Any) -> None:
    exchanges.ask(stage_exchange(exchange=number, placement=PLACEMENT, **changes), now)
    exchanges.stage(number)


def found(holdings: Holdings, layer: int = 1) -> list[int]:
    """Held by a layer."""
    known = holdings.get(PLACEMENT)
    assert known is not None
    return np.flatnonzero(known[layer]).tolist()


def test_both_are_held_while_it_is_staged_and_one_before_and_after() -> None:
    holdings, exchanges = first()
    asked = stage_exchange(placement=PLACEMENT, leaves=0, comes=2)
    exchanges.ask(asked, 0.0)
    assert found(holdings) == [0, 1], "it is not ready yet"
    exchanges.stage(7)
    assert found(holdings) == [0, 1, 2]
    assert exchanges.commit(7) is asked
    assert found(holdings) == [1, 2]
    assert found(holdings, layer=0) == []


def test_the_reverse_exchange_restores_the_set() -> None:
    holdings, exchanges = first()
    stage(exchanges, leaves=0, comes=2)
    exchanges.commit(7)
    stage(exchanges, leaves=2, comes=0)
    exchanges.commit(7)
    assert found(holdings) == [0, 1]


def test_a_set_that_somebody_reads_is_replaced_and_not_changed() -> None:
    holdings, exchanges = first()
    before = holdings.get(PLACEMENT)
    assert before is not None
    before.flags.writeable = False  # as what comes from a socket
    stage(exchanges)
    both = holdings.get(PLACEMENT)
    exchanges.commit(7)
    assert before[1].tolist() == [1, 1, 0, 0, 0, 0]
    assert both is not None
    assert both[1].tolist() == [1, 1, 1, 0, 0, 0]


def test_residency_counts_every_change_and_nothing_else() -> None:
    holdings, exchanges = first()
    assert exchanges.residency == holdings.residency == 1  # what was assigned
    exchanges.ask(stage_exchange(placement=PLACEMENT), 0.0)
    assert exchanges.residency == 1
    exchanges.stage(7)
    assert exchanges.residency == 2
    exchanges.commit(7)
    assert exchanges.residency == 3
    stage(exchanges, leaves=2, comes=0)
    exchanges.drop(7)
    assert exchanges.residency == 5
    with pytest.raises(ExchangeError):
        exchanges.commit(7)
    with pytest.raises(ExchangeError):
        stage(exchanges, leaves=5)
    exchanges.ask(stage_exchange(placement=PLACEMENT, leaves=2, comes=0), 0.0)
    exchanges.drop_all()  # it never was ready
    assert exchanges.residency == 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"comes": 0}, "expert 0 of layer 1 cannot take its own place"),
        ({"leaves": 3}, "expert 3 of layer 1 is to leave and is not held"),
        ({"comes": 1}, "expert 1 of layer 1 is to come and is held already"),
        ({"layer": 0}, "expert 0 of layer 0 is to leave and is not held"),
        ({"layer": 2}, "the model has layers 0 to 1, found 2"),
        ({"layer": -1}, "the model has layers 0 to 1, found -1"),
        ({"leaves": -1}, "the model has experts 0 to 5, found -1"),
        ({"leaves": 6}, "the model has experts 0 to 5, found 6"),
        ({"comes": 6}, "the model has experts 0 to 5, found 6"),
        ({"comes": 2**63 - 1}, f"the model has experts 0 to 5, found {2**63 - 1}"),
        ({"placement": 3}, "placement 3 is not the latest that was assigned here, which is 4"),
        ({"placement": 5}, "placement 5 is not the latest that was assigned here, which is 4"),
    ],
)
def test_what_cannot_be_staged_is_refused_by_reason(change: dict[str, Any], reason: str) -> None:
    holdings, exchanges = first()
    with pytest.raises(ExchangeError) as refused:
        exchanges.ask(stage_exchange(**({"placement": PLACEMENT} | change)), 0.0)
    assert str(refused.value) == reason
    assert (found(holdings), exchanges.residency) == ([0, 1], 1)
    assert exchanges.drop_all() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"exchange": 7}, "exchange 7 is under way already"),
        ({"leaves": 0}, "expert 0 of layer 1 is in exchange 7"),
        ({"comes": 2}, "expert 2 of layer 1 is in exchange 7"),
        ({"leaves": 2, "comes": 3}, "expert 2 of layer 1 is in exchange 7"),
        ({"leaves": 1, "comes": 0}, "expert 0 of layer 1 is in exchange 7"),
    ],
)
@pytest.mark.parametrize("ready", [False, True])
def test_an_expert_has_a_part_in_one_exchange_at_a_time(change: dict[str, Any], reason: str, ready: bool) -> None:
    _, exchanges = first()
    exchanges.ask(stage_exchange(placement=PLACEMENT, leaves=0, comes=2), 0.0)
    if ready:
        exchanges.stage(7)
    another = {"exchange": 8, "placement": PLACEMENT, "leaves": 1, "comes": 3}
    with pytest.raises(ExchangeError) as refused:
        exchanges.ask(stage_exchange(**(another | change)), 0.0)
    assert str(refused.value) == reason
    exchanges.ask(stage_exchange(**another), 0.0)


def test_layers_exchange_the_same_numbers_at_once() -> None:
    holdings, exchanges = holding(held((0, 0), (1, 0)))
    stage(exchanges, 7, layer=0, leaves=0, comes=2)
    stage(exchanges, 8, layer=1, leaves=0, comes=2)
    exchanges.commit(7)
    assert (found(holdings, 0), found(holdings, 1)) == ([2], [0, 2])


def test_so_many_are_staged_at_once_and_no_more() -> None:
    most = 2 * MAX_STAGED + 2
    _, exchanges = holding(held(*((1, expert) for expert in range(MAX_STAGED + 1)), experts=most))
    for number in range(MAX_STAGED):
        exchanges.ask(
            stage_exchange(exchange=number, placement=PLACEMENT, leaves=number, comes=number + MAX_STAGED + 1), 0.0
        )
    one_more = stage_exchange(exchange=99, placement=PLACEMENT, leaves=MAX_STAGED, comes=most - 1)
    with pytest.raises(ExchangeError, match=rf"^{MAX_STAGED} exchanges are under way, {MAX_STAGED} at most can be$"):
        exchanges.ask(one_more, 0.0)
    exchanges.drop(3)
    exchanges.ask(one_more, 0.0)


def test_what_is_not_ready_or_not_known_is_not_committed() -> None:
    holdings, exchanges = first()
    exchanges.ask(stage_exchange(placement=PLACEMENT), 0.0)
    with pytest.raises(ExchangeError, match=r"^expert 2 of layer 1 is not ready yet$"):
        exchanges.commit(7)
    with pytest.raises(ExchangeError, match=r"^exchange 8 is not staged here$"):
        exchanges.commit(8)
    assert found(holdings) == [0, 1]
    exchanges.stage(7)
    exchanges.commit(7)
    with pytest.raises(ExchangeError, match=r"^exchange 7 is not staged here$"):
        exchanges.commit(7)
    assert found(holdings) == [1, 2]


def test_each_is_dropped_when_its_own_time_is_up() -> None:
    holdings, exchanges = first()
    stage(exchanges, 7, now=10.0, leaves=0, comes=2, within_s=5.0)
    stage(exchanges, 8, now=10.0, leaves=1, comes=3, within_s=6.0)
    assert exchanges.expire(14.9) == []
    assert [one.exchange for one in exchanges.expire(15.0)] == [7]
    assert found(holdings) == [0, 1, 3]
    assert [one.exchange for one in exchanges.expire(99.0)] == [8]
    assert found(holdings) == [0, 1]
    assert exchanges.expire(99.0) == []


def test_one_that_takes_too_long_to_read_is_dropped_too() -> None:
    holdings, exchanges = first()
    exchanges.ask(stage_exchange(placement=PLACEMENT, within_s=5.0), 0.0)
    assert [one.exchange for one in exchanges.expire(5.0)] == [7]
    assert (found(holdings), exchanges.residency) == ([0, 1], 1)


def test_an_assignment_drops_all_and_has_to_be_ready_before_the_next_one() -> None:
    holdings, exchanges = first()
    stage(exchanges)
    assert [one.exchange for one in exchanges.assign(5)] == [7]
    assert found(holdings) == [0, 1]
    for placement, reason in (
        (4, "placement 4 is not the latest that was assigned here, which is 5"),
        (5, "placement 5 is not ready yet"),
    ):
        with pytest.raises(ExchangeError, match=rf"^{reason}"):
            exchanges.ask(stage_exchange(placement=placement), 0.0)
    holdings.add(assignment(5, held((1, 0)), in_force=PLACEMENT))
    exchanges.ask(stage_exchange(placement=5), 0.0)
    exchanges.stage(7)
    assert found(holdings) == [0, 1], "the set in force is not touched"


def test_a_membership_to_which_nothing_was_assigned_has_nothing_to_exchange() -> None:
    holdings, _ = first()
    with pytest.raises(
        ExchangeError, match=r"^placement 4 is not the latest that was assigned here, where none was yet$"
    ):
        Exchanges(holdings).ask(stage_exchange(placement=PLACEMENT), 0.0)


def test_the_rule_of_the_table() -> None:
    table = held((0, 1))
    assert why_not(table, 0, 1, 0) == ""
    assert why_not(table, 0, 0, 1) != ""
    assert table.tolist() == held((0, 1)).tolist()


class AnyOrder(RuleBasedStateMachine):
    """Requests in any order, sound or not, beside sets of plain numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.holdings = Holdings()
        self.exchanges = Exchanges(self.holdings)
        self.placement = self.in_force = 0
        self.now = 0.0
        self.held: dict[int, set[tuple[int, int]]] = {}
        self.under_way: dict[int, tuple[int, int, int, bool, float]] = {}
        self.changes = 0

    numbers = st.integers(0, 3)
    experts = st.integers(-1, EXPERTS)
    times = st.sampled_from([1.0, 9.0])

    @rule(bits=st.integers(0, 2 ** (LAYERS * EXPERTS) - 1), ready=st.booleans(), takes_over=st.booleans())
    def assign(self, bits: int, ready: bool, takes_over: bool) -> None:
        if takes_over and self.placement in self.held:
            self.in_force = self.placement
        self._forget(set(self.under_way))
        self.placement += 1
        self.exchanges.assign(self.placement)
        pairs = {(pair // EXPERTS, pair % EXPERTS) for pair in range(LAYERS * EXPERTS) if bits >> pair & 1}
        if ready:
            self.holdings.add(assignment(self.placement, held(*pairs), self.in_force))
            self.held = {version: of for version, of in self.held.items() if version == self.in_force}
            self.held[self.placement] = pairs
            self.changes += 1

    @rule(number=numbers, layer=st.integers(-1, LAYERS), leaves=experts, comes=experts, within_s=times)
    def ask_anything(self, number: int, layer: int, leaves: int, comes: int, within_s: float) -> None:
        self._ask(number, layer, leaves, comes, within_s)

    @precondition(lambda self: self.placement in self.held)
    @rule(number=numbers, layer=st.integers(0, LAYERS - 1), within_s=times, data=st.data())
    def ask_for_one_that_is_not_held(self, number: int, layer: int, within_s: float, data: st.DataObject) -> None:
        has = self.held[self.placement]
        here = [expert for expert in range(EXPERTS) if (layer, expert) in has]
        missing = [expert for expert in range(EXPERTS) if (layer, expert) not in has]
        if here and missing:
            leaves, comes = (data.draw(st.sampled_from(some)) for some in (here, missing))
            self._ask(number, layer, leaves, comes, within_s)

    def _ask(self, number: int, layer: int, leaves: int, comes: int, within_s: float) -> None:
        asked = stage_exchange(
            exchange=number, placement=self.placement, layer=layer, leaves=leaves, comes=comes, within_s=within_s
        )
        has = self.held.get(self.placement)
        busy = {(one[0], expert) for one in self.under_way.values() for expert in one[1:3]}
        sound = (
            has is not None
            and number not in self.under_way
            and (layer, leaves) in has
            and (layer, comes) not in has
            and 0 <= comes < EXPERTS
            and not busy & {(layer, leaves), (layer, comes)}
        )
        try:
            self.exchanges.ask(asked, self.now)
        except ExchangeError:
            assert not sound
        else:
            assert sound
            self.under_way[number] = (layer, leaves, comes, False, self.now + within_s)

    @precondition(lambda self: any(not one[3] for one in self.under_way.values()))
    @rule(data=st.data())
    def become_ready(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(one for one, of in self.under_way.items() if not of[3])))
        self.exchanges.stage(number)
        layer, leaves, comes, _, until = self.under_way[number]
        self.under_way[number] = (layer, leaves, comes, True, until)
        self.held[self.placement].add((layer, comes))
        self.changes += 1

    @rule(number=numbers)
    def commit(self, number: int) -> None:
        layer, leaves, _, ready, _ = self.under_way.get(number, (0, 0, 0, False, 0.0))
        try:
            self.exchanges.commit(number)
        except ExchangeError:
            assert not ready
        else:
            assert ready
            self.held[self.placement].remove((layer, leaves))
            del self.under_way[number]
            self.changes += 1

    @rule(seconds=st.sampled_from([0.5, 2.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        over = {number for number, one in self.under_way.items() if one[4] <= self.now}
        assert {one.exchange for one in self.exchanges.expire(self.now)} == over
        self._forget(over)

    @rule()
    def drop_all(self) -> None:
        assert {one.exchange for one in self.exchanges.drop_all()} == set(self.under_way)
        self._forget(set(self.under_way))

    def _forget(self, numbers: set[int]) -> None:
        for number in numbers:
            layer, _, comes, ready, _ = self.under_way.pop(number)
            if ready:
                self.held[self.placement].remove((layer, comes))
                self.changes += 1

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        for version in range(self.placement + 1):
            of, expected = self.holdings.get(version), self.held.get(version)
            assert (of is None) == (expected is None)
            if of is not None and expected is not None:
                assert {(int(layer), int(expert)) for layer, expert in np.argwhere(of)} == expected
        assert self.exchanges.residency == self.changes


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
