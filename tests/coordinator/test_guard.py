"""When an answer cannot come any more, told from which child ended how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator.guard import Guard
from protocol.errors import ExpertmeshError


@dataclass
class FakeChild:
    name: str
    code: int
    words: str = ""
    pid: int = 77

    def exit_code(self) -> int:
        return self.code

    def last_words(self) -> str:
        return self.words

    def ended(self) -> str:
        return f"ended with {self.code}"


@dataclass
class Fakes:
    """A launcher whose children have ended, and a coordinator that tells its state."""

    children: list[Any] = field(default_factory=list)
    report: dict[str, Any] | None = None
    asked: int = 0
    while_asked: Callable[[], object] = lambda: None

    def ended(self) -> list[Any]:
        return self.children

    def status(self, within_s: float, watch: Callable[[], None]) -> dict[str, Any] | None:
        self.asked += 1
        self.while_asked()
        watch()
        return self.report


def guard(fakes: Fakes, told: list[str] | None = None) -> Guard:
    return Guard(fakes, fakes, ([] if told is None else told).append)


def test_while_all_run_nobody_is_asked() -> None:
    fakes = Fakes()
    guard(fakes)()
    assert fakes.asked == 0


@pytest.mark.parametrize("state", ["ready", "busy"])
def test_a_worker_lost_in_mid_answer_is_told_of_once(state: str) -> None:
    fakes, told = Fakes([FakeChild("worker-1", -9)], {"state": state}), list[str]()
    watch = guard(fakes, told)
    watch()
    watch()
    assert told == ["worker-1 (process 77) ended with -9; the answer goes on without it"]
    assert fakes.asked == 1


@pytest.mark.parametrize("report", [{"state": "waiting"}, None])
def test_a_worker_lost_before_all_have_joined_ends_the_wait(report: dict[str, Any] | None) -> None:
    with pytest.raises(ExpertmeshError, match=r"^worker-1 \(process 77\) ended with -9$"):
        guard(Fakes([FakeChild("worker-1", -9)], report))()


@pytest.mark.parametrize("code", [-9, 2])
def test_a_lookahead_process_is_not_waited_for(code: int) -> None:
    fakes, told = Fakes([FakeChild("lookahead", code)], {"state": "waiting"}), list[str]()
    watch = guard(fakes, told)
    watch()
    watch()
    assert told == [f"lookahead (process 77) ended with {code}; the answer goes on without it"]
    assert fakes.asked == 0


def test_the_coordinator_lost_ends_the_wait_and_nobody_is_asked() -> None:
    fakes = Fakes([FakeChild("worker-0", -9), FakeChild("coordinator", -11)], {"state": "ready"})
    with pytest.raises(ExpertmeshError, match=r"^coordinator \(process 77\) ended with -11$"):
        guard(fakes)()
    assert fakes.asked == 0


def test_the_coordinator_lost_while_it_is_asked() -> None:
    fakes = Fakes([FakeChild("worker-0", -9)])
    fakes.while_asked = lambda: fakes.children.append(FakeChild("coordinator", -11))
    with pytest.raises(ExpertmeshError, match=r"^coordinator \(process 77\) ended with -11$"):
        guard(fakes)()


@pytest.mark.parametrize("name", ["coordinator", "worker-0"])
def test_a_bad_setting_is_told_in_the_words_of_the_child(name: str) -> None:
    with pytest.raises(ExpertmeshError, match=r"^no such model$"):
        guard(Fakes([FakeChild(name, 2, "no such model")], {"state": "waiting"}))()


def test_a_worker_that_gives_up_in_mid_answer_ends_nothing() -> None:
    told: list[str] = []
    guard(Fakes([FakeChild("worker-0", 2, "refused")], {"state": "busy"}), told)()
    assert told == ["worker-0 (process 77) ended with 2; the answer goes on without it"]
