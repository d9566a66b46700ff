"""The supervisor against a launcher and a clock that are told what to say."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

import pytest

from coordinator.restarts import RestartPolicy
from coordinator.supervisor import LEAVE_S, Supervisor
from protocol.errors import ExpertmeshError


@dataclass
class FakeProcess:
    name: str
    pid: int
    started_at: float
    code: int | None = None
    signals: list[int] = field(default_factory=list)

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def exit_code(self) -> int | None:
        return self.code

    def ended(self) -> str:
        return f"ended with {self.code}"

    def tail(self, count: int) -> list[str]:
        return [f"line {number}" for number in range(20)][-count:]


@dataclass
class FakeLauncher:
    clock: list[float]
    children: dict[str, FakeProcess] = field(default_factory=dict)
    started: int = 0

    def start(self, name: str) -> FakeProcess:
        self.started += 1
        self.children[name] = FakeProcess(name, 100 + self.started, self.clock[0])
        return self.children[name]

    def forget(self, name: str) -> None:
        del self.children[name]


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def launcher(clock: list[float]) -> FakeLauncher:
    launcher = FakeLauncher(clock)
    for name in ("coordinator", "box-0"):
        launcher.start(name)
    return launcher


@pytest.fixture
def supervisor(launcher: FakeLauncher, clock: list[float]) -> Supervisor:
    policy = RestartPolicy(first_delay_s=1.0, sound_s=10.0, limit=2)
    return Supervisor(launcher, policy, clock=lambda: clock[0])


def test_nothing_happens_while_all_run(supervisor: Supervisor, launcher: FakeLauncher) -> None:
    assert supervisor.tick() == []
    assert launcher.started == 2
    assert [role.state for role in supervisor.roles.values()] == ["running", "running"]


def test_an_exit_is_told_once_and_started_again_when_due(
    supervisor: Supervisor, launcher: FakeLauncher, clock: list[float]
) -> None:
    launcher.children["box-0"].code = -9
    assert supervisor.tick() == ["box-0 (process 102) ended with -9"]
    assert supervisor.tick() == []
    assert supervisor.roles["box-0"].state == "restarting"
    clock[0] = 0.9
    assert supervisor.tick() == []
    clock[0] = 1.0
    assert supervisor.tick() == ["box-0 started again (process 103)"]
    assert supervisor.roles["box-0"].state == "running"
    assert supervisor.roles["box-0"].pid == 103
    assert supervisor.roles["box-0"].restarts == 1


def test_the_coordinator_is_started_again_too(
    supervisor: Supervisor, launcher: FakeLauncher, clock: list[float]
) -> None:
    launcher.children["coordinator"].code = -11
    supervisor.tick()
    clock[0] = 2.0
    assert supervisor.tick() == ["coordinator started again (process 103)"]


def test_a_worker_that_keeps_ending_is_given_up_alone(
    supervisor: Supervisor, launcher: FakeLauncher, clock: list[float]
) -> None:
    supervisor.begun = True
    lines: list[str] = []
    for _ in range(20):
        launcher.children["box-0"].code = 1
        lines += supervisor.tick()
        clock[0] += 3.0
    assert lines[-9].startswith("box-0 is not started again: it ended 3 times in a row")
    assert lines[-8:] == [f"box-0 wrote: line {number}" for number in range(12, 20)]
    assert supervisor.roles["box-0"].state == "given up"
    assert supervisor.roles["coordinator"].state == "running"
    assert launcher.started == 4


def test_a_coordinator_that_cannot_run_ends_it_all(supervisor: Supervisor, launcher: FakeLauncher) -> None:
    launcher.children["coordinator"].code = 2
    with pytest.raises(ExpertmeshError, match=r"coordinator \(process 101\) ended with 2; it is not started again"):
        supervisor.tick()


def test_a_lookahead_process_that_cannot_run_is_given_up_alone(launcher: FakeLauncher, clock: list[float]) -> None:
    launcher.start("lookahead").code = 2
    supervisor = Supervisor(launcher, RestartPolicy(), clock=lambda: clock[0])
    assert supervisor.tick()[-1] == "lookahead is not started again: it cannot run as it was asked to"
    assert supervisor.roles["box-0"].state == "running"


def test_who_cannot_run_before_the_cluster_has_begun_ends_it_all(
    supervisor: Supervisor, launcher: FakeLauncher
) -> None:
    launcher.children["box-0"].code = 2
    with pytest.raises(ExpertmeshError, match=r"box-0 \(process 102\) ended with 2; it is not started again"):
        supervisor.tick()


@pytest.mark.parametrize("begun", [False, True])
def test_who_left_in_order_is_not_started_again(
    supervisor: Supervisor, launcher: FakeLauncher, clock: list[float], begun: bool
) -> None:
    supervisor.begun = begun
    launcher.children["box-0"].code = 0
    assert supervisor.tick()[-1] == "box-0 is not started again: it left as it was asked to"
    clock[0] = 100.0
    assert supervisor.tick() == []
    assert supervisor.roles["box-0"].state == "left"
    assert launcher.started == 2


def test_a_coordinator_that_ended_in_order_is_nothing_to_look_after(
    supervisor: Supervisor, launcher: FakeLauncher
) -> None:
    launcher.children["coordinator"].code = 0
    assert supervisor.tick() == []


def test_one_more_is_started_and_looked_after(supervisor: Supervisor, launcher: FakeLauncher) -> None:
    supervisor.add("box-1")
    assert supervisor.roles["box-1"].state == "running"
    launcher.children["box-1"].code = 1
    assert supervisor.tick() == ["box-1 (process 103) ended with 1"]
    assert supervisor.roles["box-1"].state == "restarting"


def test_who_is_let_go_leaves_and_is_not_started_again(
    supervisor: Supervisor, launcher: FakeLauncher, clock: list[float]
) -> None:
    child = launcher.children["box-0"]
    supervisor.let_go("box-0")
    assert child.signals == [signal.SIGTERM, signal.SIGCONT]
    assert supervisor.tick() == []
    assert supervisor.roles["box-0"].state == "leaving"
    clock[0] = LEAVE_S
    assert supervisor.tick() == []
    assert child.signals[-1] == signal.SIGKILL
    child.code = -9
    assert supervisor.tick() == ["box-0 (process 102) has left"]
    assert not supervisor.is_there("box-0")
    assert set(launcher.children) == {"coordinator"}
    assert launcher.started == 2


def test_who_was_given_up_or_is_about_to_be_started_again_leaves_at_once(
    supervisor: Supervisor, launcher: FakeLauncher
) -> None:
    launcher.children["box-0"].code = -9
    supervisor.tick()
    supervisor.let_go("box-0")
    assert supervisor.tick() == ["box-0 (process 102) has left"]
