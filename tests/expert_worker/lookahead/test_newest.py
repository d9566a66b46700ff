"""Of the inputs that came, the newest of each step under way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from message_examples import beat, layer_input

from expert_worker.lookahead.newest import Newest
from protocol.messages import LayerInput


def heard(*places: tuple[int, int], session: str = "s1") -> list[LayerInput]:
    return [layer_input(step=step, layer=layer, session=session) for step, layer in places]


def left(newest: Newest) -> list[tuple[int, int]]:
    found = []
    while (one := newest.next()) is not None:
        found.append((one.step, one.layer))
    return found


def test_the_newest_layer_of_a_step_is_looked_at_once() -> None:
    newest = Newest("s1")
    newest.hear(heard((0, 0), (0, 1), (0, 2)))
    assert left(newest) == [(0, 2)]
    assert newest.skipped == 2
    assert left(newest) == []


def test_two_halves_go_side_by_side() -> None:
    newest = Newest("s1")
    newest.hear(heard((4, 0), (5, 0), (4, 1), (5, 1)))
    assert left(newest) == [(4, 1), (5, 1)]


def test_what_is_passed_is_dropped() -> None:
    newest = Newest("s1")
    newest.hear(heard((1, 3), (1, 3), (1, 2), (2, 0), (3, 0), (1, 5), (0, 9)))
    assert left(newest) == [(2, 0), (3, 0)]
    assert newest.skipped == 5
    assert newest.is_passed(2, 0)
    assert not newest.is_passed(2, 1)
    assert newest.is_passed(1, 99)
    assert not newest.is_passed(9, 0)


def test_what_is_of_another_session_or_no_input_is_counted() -> None:
    newest = Newest("s1")
    newest.hear([*heard((0, 0), session="s0"), beat()])
    assert newest.foreign == 2
    assert left(newest) == []


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6), max_size=8))
def test_every_input_is_looked_at_or_skipped_and_layers_of_a_step_only_ascend(
    bursts: list[list[tuple[int, int]]],
) -> None:
    newest, looked = Newest("s1"), []
    for burst in bursts:
        newest.hear(heard(*burst))
        looked += left(newest)
    assert len(looked) + newest.skipped == sum(map(len, bursts))
    for step in {step for step, _ in looked}:
        layers = [layer for of, layer in looked if of == step]
        assert layers == sorted(set(layers))
