"""What is published of a layer, when, and what it takes from the layer: nothing that anybody waits for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted_answers import answers_well
from scripted_mesh import IDS, WEIGHTS, ScriptedMesh
from scripted_parts import LAYERS, WIDTH, expected_sums

from coordinator.layer_inputs import LOOK_S, LayerInputs
from protocol.messages import LOOKAHEAD_ROWS, LayerInput, Message, RunExperts


class Listeners:
    """Subscribers who keep up, or do not."""

    def __init__(self) -> None:
        self.refused = 0
        self.there = True
        self.keep_up = True
        self.told: list[LayerInput] = []

    def wanted(self) -> bool:
        return self.there

    def send(self, message: Message) -> bool:
        assert isinstance(message, LayerInput)
        self.told.append(message)
        self.refused += not self.keep_up
        return self.keep_up


@pytest.fixture
def listeners() -> Listeners:
    return Listeners()


def mesh_with(listeners: Listeners, workers: int, **settings: Any) -> ScriptedMesh:
    mesh = ScriptedMesh(workers, **settings)
    inputs = LayerInputs(publisher=listeners, session="5e55", last_layer=LAYERS - 1)
    mesh.experts._inputs = inputs
    return mesh


@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_layers_input_is_told_as_it_travels(listeners: Listeners, workers: int, quantised: bool) -> None:
    mesh = mesh_with(listeners, workers, quantised=quantised)
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS, layer=0), expected_sums(IDS, WEIGHTS))
    [told] = listeners.told
    assert (told.session, told.step, told.layer) == ("5e55", mesh.steps, 0)
    rows = len(IDS)
    if quantised:
        assert (told.codes.shape, told.scales.shape, told.values.size) == ((rows, WIDTH), (rows, WIDTH // 32), 0)
    else:
        assert (told.codes.size, told.scales.size, told.values.shape) == (0, 0, (rows, WIDTH))
    for worker in mesh.workers:
        [work] = worker.work
        np.testing.assert_array_equal(
            told.codes[work.row] if quantised else told.values[work.row], work.codes if quantised else work.values
        )
    assert mesh.experts.inputs_report()["published"] == 1


def test_workers_are_asked_first_and_the_local_bank_begins_after(listeners: Listeners) -> None:
    order: list[str] = []
    mesh = mesh_with(listeners, 1)

    def answer(work: RunExperts) -> list[Message]:
        order.append("asked")
        return answers_well(work)

    [worker] = mesh.workers
    worker.behaviour = answer
    told = listeners.send
    listeners.send = lambda message: bool(order.append("told")) or told(message)  # type: ignore[method-assign]
    mesh.run(IDS, WEIGHTS)
    assert order == ["asked", "told"]


def test_of_the_last_layer_nothing_is_told_and_to_nobody_neither(listeners: Listeners) -> None:
    mesh = mesh_with(listeners, 1)
    mesh.run(IDS, WEIGHTS, layer=LAYERS - 1)
    listeners.there = False
    mesh.run(IDS, WEIGHTS, layer=0)
    assert listeners.told == []
    assert mesh.experts.inputs_report() == {"published": 0, "refused": 0, "us": 0}
    assert ScriptedMesh(1).experts.inputs_report() == {}


def test_of_many_rows_the_first_are_told(listeners: Listeners) -> None:
    mesh = mesh_with(listeners, 0)
    rows = LOOKAHEAD_ROWS + 3
    mesh.run(np.tile(IDS[:1], (rows, 1)), np.tile(WEIGHTS[:1], (rows, 1)))
    assert len(listeners.told[0].codes) == LOOKAHEAD_ROWS


def test_who_does_not_keep_up_is_counted_and_nothing_else_happens(listeners: Listeners) -> None:
    listeners.keep_up = False
    mesh = mesh_with(listeners, 2)
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))
    assert mesh.experts.inputs_report()["refused"] == 1


def test_rows_are_not_fetched_from_a_device_for_this_alone(listeners: Listeners) -> None:
    mesh = mesh_with(listeners, 0, slots=8)
    assert mesh.slots is not None
    mesh.run(np.array([[0, 3]], np.int32), np.ones((1, 2), np.float32))
    assert mesh.slots.diary == ["launch", "check"]
    assert listeners.told == []
    mesh.run(np.array([[1, 4]], np.int32), np.ones((1, 2), np.float32))
    assert mesh.slots.diary.count("fetch") == 1
    assert len(listeners.told) == 1


def test_while_nobody_listens_the_socket_is_rarely_asked(listeners: Listeners) -> None:
    now, asked = [0.0], 0

    def wanted() -> bool:
        nonlocal asked
        asked += 1
        return listeners.there

    listeners.there = False
    listeners.wanted = wanted  # type: ignore[method-assign]
    inputs = LayerInputs(publisher=listeners, session="5e55", last_layer=9, clock=lambda: now[0])
    assert not any(inputs.wanted(layer) for layer in range(9))
    assert asked == 1
    now[0] += LOOK_S
    listeners.there = True
    assert all(inputs.wanted(layer) for layer in range(9))
    assert asked == 10
    assert not inputs.wanted(9)


def test_a_large_input_does_not_lie_where_the_step_has_it(listeners: Listeners) -> None:
    inputs = LayerInputs(publisher=listeners, session="5e55", last_layer=9)
    values = np.zeros((LOOKAHEAD_ROWS, 4096), np.float32)
    inputs.publish(0, 0, np.empty((0, 0), np.int8), np.empty((0, 0), np.float32), values)
    values[:] = 1
    assert not listeners.told[0].values.any()
