"""A change of the number of workers, with a launcher and a clock that are told what to say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_supervisor import FakeLauncher

from coordinator.config import ClusterConfig, PeerConfig, WorkerGroup
from coordinator.launch_plan import ProcessPlan, resolve
from coordinator.restarts import RestartPolicy
from coordinator.scaling import READY_S, Scaling, scaled
from coordinator.supervisor import Supervisor
from protocol.errors import ConfigError

BEFORE = ClusterConfig(model=Path("/m.gguf"), workers=(WorkerGroup(name="a", count=2), WorkerGroup(name="b", count=0)))


class Changing(FakeLauncher):
    """It also remembers what it has been told to start from now on."""

    def planned(self, config: ClusterConfig) -> dict[str, ProcessPlan]:
        return {plan.name: plan for plan in resolve(config, python="py", cores=()).processes}

    def adopt(self, plan: ProcessPlan) -> None:
        self.adopted = {**getattr(self, "adopted", {}), plan.name: plan}

    @property
    def workers_waited_for(self) -> str:
        command = self.adopted["coordinator"].command
        return str(command[command.index("--workers") + 1])


class Case:
    """A cluster of two workers that is up, and a change of it."""

    def __init__(self, gone: Mapping[str, int] | None = None, **counts: int) -> None:
        """With those that have `gone` for good before, each with its exit code."""
        self.clock = [0.0]
        self.launcher = Changing(self.clock)
        for name in ("coordinator", "a-0", "a-1"):
            self.launcher.start(name)
        self.supervisor = Supervisor(self.launcher, RestartPolicy(), clock=lambda: self.clock[0])
        self.supervisor.begun = True
        for name, code in (gone or {}).items():
            self.launcher.children[name].code = code
        self.supervisor.tick()
        self.config = BEFORE
        self.change(**counts)

    def change(self, **counts: int) -> None:
        before, self.config = self.config, scaled(self.config, counts)
        self.scaling = Scaling(
            before, self.config, self.launcher, self.supervisor, clock=lambda: self.clock[0], groups=counts
        )

    def tick(self, **states: str) -> bool:
        there = [{"name": name.replace("_", "-"), "state": state} for name, state in states.items()]
        gone = [{"name": one["name"], "state": "gone"} for one in there]  # earlier ones of the same names
        report: dict[str, Any] = {"workers": there + gone}
        self.supervisor.tick()
        return self.scaling.tick(report)

    def leaves(self, name: str) -> None:
        """If it is still there."""
        if name in self.launcher.children:
            self.launcher.children[name].code = 0
        self.supervisor.tick()

    @property
    def there(self) -> set[str]:
        return set(self.supervisor.roles)


def test_growing_ends_when_all_newcomers_are_ready() -> None:
    case = Case(a=3, b=1)
    assert case.there == {"coordinator", "a-0", "a-1", "a-2", "b-0"}
    assert case.launcher.workers_waited_for == "4"
    assert not case.scaling.tick(None)
    assert not case.tick(a_2="assigning", b_0="ready")
    assert case.tick(a_2="ready", b_0="ready")
    assert case.scaling.failed == ""
    assert [group.count for group in case.scaling.config.workers] == [3, 1]


def test_shrinking_lets_the_last_ones_go_and_waits_for_them() -> None:
    case = Case(a=0)
    assert not case.tick()
    assert {name for name, role in case.supervisor.roles.items() if role.state == "leaving"} == {"a-0", "a-1"}
    case.leaves("a-1")
    assert not case.tick()
    case.leaves("a-0")
    assert case.tick()
    assert case.there == {"coordinator"}
    assert case.launcher.workers_waited_for == "0"


def test_nobody_is_let_go_before_newcomers_are_ready() -> None:
    case = Case(a=1, b=1)
    assert not case.tick()
    assert case.supervisor.roles["a-1"].state == "running"
    assert not case.tick(b_0="ready")
    assert case.supervisor.roles["a-1"].state == "leaving"
    case.leaves("a-1")
    assert case.tick()


@pytest.mark.parametrize("how", ["given up", "failed", "late"])
def test_newcomers_all_go_again_if_one_is_of_no_use(how: str) -> None:
    case = Case(a=1, b=2)
    if how == "given up":
        case.launcher.children["b-1"].code = 2
        case.tick(b_0="ready")
    elif how == "failed":
        case.tick(b_0="ready", b_1="failed")
    else:
        case.clock[0] = READY_S + 1
        case.tick(b_0="ready")
    assert case.scaling.failed.startswith({"late": "b-0, b-1 not ready within 600 s"}.get(how, "b-1 is of no use: it "))
    assert case.supervisor.roles["a-1"].state == "running"
    assert case.launcher.workers_waited_for == "2"
    for name in ("b-0", "b-1"):
        case.leaves(name)
    assert case.tick()
    assert case.there == {"coordinator", "a-0", "a-1"}
    assert case.scaling.config is BEFORE


def test_a_newcomer_that_ends_is_given_another_chance() -> None:
    case = Case(a=3)
    case.launcher.children["a-2"].code = -9
    assert not case.tick(a_2="ready")  # which is news of the one that has ended
    case.clock[0] = 1.0
    case.supervisor.tick()
    assert case.tick(a_2="ready")


@pytest.mark.parametrize("code", [0, 2])
def test_who_was_drained_or_given_up_comes_back_if_its_group_is_named(code: int) -> None:
    case = Case(a=2, gone={"a-1": code}, b=0)
    assert case.supervisor.roles["a-1"].state == "running"
    assert not case.tick(a_0="ready")
    assert case.tick(a_0="ready", a_1="ready")
    assert case.scaling.failed == ""


def test_who_was_drained_stays_away_if_other_groups_are_named() -> None:
    case = Case(b=1, gone={"a-1": 0})
    assert case.supervisor.roles["a-1"].state == "left"
    assert case.tick(a_0="ready", b_0="ready")


def test_who_could_not_come_back_can_be_wished_away_and_for_again() -> None:
    case = Case(a=2, gone={"a-1": 2})
    case.launcher.children["a-1"].code = 2
    case.tick(a_0="ready")
    assert case.tick(a_0="ready")
    assert case.scaling.failed.startswith("a-1 is of no use: ")
    case.change(a=1)
    assert case.tick(a_0="ready")
    assert case.there == {"coordinator", "a-0"}
    case.change(a=2)
    assert case.there == {"coordinator", "a-0", "a-1"}


def test_a_change_that_cannot_be_is_told_whole() -> None:
    config = ClusterConfig(model=Path("/m"), workers=(WorkerGroup(name="a", count=64),), peers=(PeerConfig(name="p"),))
    with pytest.raises(ConfigError) as caught:
        scaled(config, {"x": 1, "a": 65})
    assert str(caught.value).splitlines() == [
        "no group of workers is called x; there are a",
        "65 workers called a are wanted, 0 to 64 are expected",
    ]
    many = ClusterConfig(model=Path("/m"), workers=tuple(WorkerGroup(name=f"g{n}", count=64) for n in range(5)))
    with pytest.raises(ConfigError, match="257 workers and peers in all are wanted, 256 at most are expected"):
        scaled(many, {"g0": 1})
    assert scaled(BEFORE, {}) == BEFORE
