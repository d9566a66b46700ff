"""Hints followed for what is held and far away, and scored by what is asked for."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import wait_until
from message_examples import run_experts, warm
from open_bank import open_bank

from expert_worker.bank import ExpertBank
from expert_worker.expert_table import ExpertTable
from expert_worker.hinted import Hinted
from expert_worker.sources.mapped import MappedSource
from expert_worker.sources.source import Experts
from protocol.endpoints import hints_endpoint
from protocol.geometry import Geometry
from protocol.holder.holdings import Holdings
from protocol.holder.serve import Desk
from protocol.messages import I32, NO_RANK, U8, Assign, RunExperts
from protocol.model import Model
from protocol.wire import Publisher

pytestmark = pytest.mark.timeout(60)

WITHIN_S = 10.0


class FarSource(MappedSource):
    """Experts whose bytes are where a test says."""

    def __init__(self, table: ExpertTable) -> None:
        super().__init__(table)
        self.far: set[int] = set()
        self.warmed: queue.Queue[tuple[int, list[int]]] = queue.Queue()

    def fetch(self, layer: int, experts: I32) -> U8 | None:
        return self.missing(layer, experts)

    def missing(self, layer: int, experts: I32) -> U8:
        return np.isin(experts, list(self.far)).astype(np.uint8)

    def warm(self, layer: int, experts: Experts) -> None:
        self.warmed.put((layer, experts.tolist()))


@pytest.fixture
def bank(tiny_model: Path) -> Iterator[ExpertBank]:
    with open_bank(tiny_model, source=FarSource) as bank:
        yield bank


def far(bank: ExpertBank) -> FarSource:
    assert isinstance(bank.source, FarSource)
    return bank.source


def work(*experts: int, step: int) -> RunExperts:
    """For layer 2 of the tiny model: a row that needs these."""
    return run_experts(experts=experts, step=step, layer=2, width=256)


@pytest.fixture
def geometry(tiny_model: Path) -> Geometry:
    with Model.open(tiny_model) as model:
        return model.geometry


def desk(session: str, geometry: Geometry, *held: int) -> Desk:
    """All of layer 2 that is named is held."""
    holdings, sets = Holdings(), np.zeros((geometry.layers, geometry.experts), np.uint8)
    sets[2, list(held)] = 1
    holdings.add(Assign(placement=1, in_force=0, held=sets, rank=NO_RANK))
    return Desk(session=session, token="t", work="w", holdings=holdings)


def test_what_is_held_and_far_is_read_and_its_worth_counted(bank: ExpertBank, geometry: Geometry) -> None:
    source, hinted = far(bank), Hinted(bank, geometry)
    assert bank.answer(work(0, 3, step=4), 7).wait_us == 7
    source.far = {0, 1, 3}
    hinted.follow(warm(0, 1, 2, step=5, layer=2))
    assert source.warmed.empty(), "without a desk nothing is held"
    hinted.joined(desk("s1", geometry, 0, 2, 3))
    hinted.follow(warm(0, 1, 2, 3, step=5, layer=2))
    assert source.warmed.get_nowait() == (2, [0, 3])
    source.far = {3}
    bank.answer(work(0, 3, step=5), 0)
    hinted.follow(warm(3, step=5, layer=2))
    assert source.warmed.empty()
    stats = bank.hints.stats()
    assert [stats[name] for name in ("hinted", "useful", "late", "wasted", "stale")] == [2, 1, 1, 0, 1]
    assert bank.counts()["hints_useful"] == 1


def test_another_session_counts_its_steps_anew(bank: ExpertBank, geometry: Geometry) -> None:
    hinted = Hinted(bank, geometry)
    far(bank).far = {0}
    for session in ("s1", "s1", "s2"):
        hinted.joined(desk(session, geometry, 0))
        hinted.follow(warm(0, session=session, step=3, layer=2))
        bank.answer(work(0, step=3), 0)
    stats = bank.hints.stats()
    assert (stats["late"], stats["stale"]) == (2, 1)


def test_hints_come_through_a_socket(bank: ExpertBank, geometry: Geometry) -> None:
    source, session = far(bank), uuid.uuid4().hex
    source.far = {2}
    with Hinted(bank, geometry) as hinted, Publisher(hints_endpoint(session)) as publisher:
        hinted.joined(desk(session, geometry, 2, 3))

        def heard() -> bool:
            publisher.send(warm(1, 2, 3, layer=2, session=session))
            return not source.warmed.empty()

        assert wait_until(heard, WITHIN_S)
        assert source.warmed.get() == (2, [2])
