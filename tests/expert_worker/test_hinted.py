"""Hints followed for what is held and far away, and scored by what is asked for."""

from __future__ import annotations

import queue
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from message_examples import run_experts, sums, warm
from open_bank import open_bank

from expert_worker.hinted import Hinted
from protocol.endpoints import hints_endpoint
from protocol.geometry import Geometry
from protocol.holder.holdings import Holdings
from protocol.holder.serve import Desk
from protocol.messages import I32, U8, Assign, RunExperts, Sums
from protocol.model import Model
from protocol.wire import Publisher

pytestmark = pytest.mark.timeout(60)

WITHIN_S = 10.0


class FakeExperts:
    """Experts whose bytes are where a test says."""

    def __init__(self) -> None:
        self.far: set[int] = set()
        self.asked_about = 0
        self.warmed: queue.Queue[tuple[int, list[int]]] = queue.Queue()

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        return sums(layer=work.layer, wait_us=wait_us)

    def make_room(self, wanted: U8, in_force: U8 | None) -> None:
        raise AssertionError("nobody asks for it here")

    def prepare(self, layer: int, experts: Any) -> None:
        raise AssertionError("nobody asks for it here")

    def missing(self, layer: int, experts: I32) -> U8:
        self.asked_about += 1
        return np.isin(experts, list(self.far)).astype(np.uint8)

    def warm(self, layer: int, experts: I32) -> None:
        self.warmed.put((layer, experts.tolist()))


@pytest.fixture
def geometry(tiny_model: Path) -> Geometry:
    with Model.open(tiny_model) as model:
        return model.geometry


def desk(session: str, geometry: Geometry, *held: int) -> Desk:
    """All of layer 2 that is named is held."""
    holdings, sets = Holdings(), np.zeros((geometry.layers, geometry.experts), np.uint8)
    sets[2, list(held)] = 1
    holdings.add(Assign(placement=1, in_force=0, held=sets))
    return Desk(session=session, token="t", work="w", holdings=holdings)


def test_what_is_held_and_far_is_read_and_its_worth_counted(geometry: Geometry) -> None:
    experts = FakeExperts()
    hinted = Hinted(experts, geometry, clock=lambda: 0.0)
    assert hinted.answer(run_experts(layer=2), 7).wait_us == 7
    hinted.follow(warm(0, 1, 2))
    assert experts.asked_about == 0, "without a desk nothing is held, and without hints nothing is looked up"
    hinted.joined(desk("s1", geometry, 0, 2, 3))
    experts.far = {0, 1, 3}
    hinted.follow(warm(0, 1, 2, 3, step=5, layer=2))
    assert experts.warmed.get_nowait() == (2, [0, 3])
    experts.far = {3}
    hinted.answer(run_experts(experts=(0, 3), step=5, layer=2), 0)
    hinted.follow(warm(3, step=5, layer=2))
    assert experts.warmed.empty()
    stats = hinted.book.stats()
    assert [stats[name] for name in ("hinted", "useful", "late", "wasted", "stale")] == [2, 1, 1, 0, 1]
    asked = experts.asked_about
    hinted.answer(run_experts(experts=(0, 3), step=6, layer=2), 0)
    assert experts.asked_about == asked, "nothing was named for this one"


def test_another_session_counts_its_steps_anew(geometry: Geometry) -> None:
    experts = FakeExperts()
    hinted = Hinted(experts, geometry)
    experts.far = {0}
    for session in ("s1", "s1", "s2"):
        hinted.joined(desk(session, geometry, 0))
        hinted.follow(warm(0, session=session, step=3, layer=2))
        hinted.answer(run_experts(experts=(0,), step=3, layer=2), 0)
    stats = hinted.book.stats()
    assert (stats["late"], stats["stale"]) == (2, 1)


def test_a_real_bank_tells_what_is_there(tiny_model: Path) -> None:
    with open_bank(tiny_model) as bank:
        tiny_model.read_bytes()
        every = np.arange(bank.layout.experts, dtype=np.int32)
        if bank.missing(2, every).any():
            pytest.skip("this kernel does not tell")
        assert bank.missing(2, every).tolist() == [0] * len(every)
        assert bank.missing(2, every[:0]).tolist() == []
        bank.warm(2, every)


def test_hints_come_through_a_socket(geometry: Geometry) -> None:
    experts, session = FakeExperts(), uuid.uuid4().hex
    experts.far = {2}
    with Hinted(experts, geometry) as hinted, Publisher(hints_endpoint(session)) as publisher:
        hinted.joined(desk(session, geometry, 2, 3))
        deadline = time.monotonic() + WITHIN_S
        while experts.warmed.empty():
            assert time.monotonic() < deadline
            publisher.send(warm(1, 2, 3, layer=2, session=session))
            time.sleep(0)
        assert experts.warmed.get() == (2, [2])
