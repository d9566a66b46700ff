"""What is read of memory and of waiting for it, whatever files there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cgroups import control_group, skip_unless_possible
from fake_machine import GIB, FakeMachine, first_group, second_group
from hypothesis import given, settings
from hypothesis import strategies as st

from expert_worker.pressure import State, decide
from expert_worker.pressure_watch import PressureWatch

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path)
    (tmp_path / "proc/pressure").mkdir()
    (tmp_path / "proc/pressure/memory").write_text(pressure(70, 7))
    return machine


def pressure(some: int, full: int) -> str:
    return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"


def read(machine: FakeMachine) -> tuple[int | None, int | None, int | None, int | None]:
    found = PressureWatch(machine.root).read()
    return found.limit, found.room, found.some_us, found.full_us


def test_a_machine_without_groups(machine: FakeMachine) -> None:
    assert read(machine) == (64 * GIB, 48 * GIB, 70, 7)


def test_the_own_group_tells_who_waits_where_it_can(machine: FakeMachine) -> None:
    top = machine.second("/slice/box")
    box = second_group(top / "slice/box", 4 * GIB, GIB)
    second_group(top / "slice", 8 * GIB, 6 * GIB)
    assert read(machine) == (4 * GIB, 2 * GIB, 70, 7)
    (box / "memory.pressure").write_text(pressure(5, 3))
    assert read(machine) == (4 * GIB, 2 * GIB, 5, 3)


def test_version_1_has_only_the_machine_s_waiting(machine: FakeMachine) -> None:
    first_group(machine.first() / "box", 4 * GIB, 5 * GIB)
    assert read(machine) == (4 * GIB, -GIB, 70, 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (None, None)),
        ("", (None, None)),
        ("some avg10=0.00 total=5\n", (5, None)),
        ("some avg10=0.00 total=x\nfull total=-3\n", (None, None)),
        ("garbage\0" * 1000, (None, None)),
        ("some avg10=0.00 total=99999999999999999999999\n", (None, None)),
    ],
)
def test_waiting_that_cannot_be_read(
    machine: FakeMachine, text: str | None, expected: tuple[int | None, int | None]
) -> None:
    path = machine.root / "proc/pressure/memory"
    path.unlink() if text is None else path.write_text(text)
    assert read(machine)[2:] == expected


def test_room_that_is_not_known(machine: FakeMachine) -> None:
    limit = second_group(machine.second() / "box", 4 * GIB) / "memory.max"
    limit.write_text("x")
    watch = PressureWatch(machine.root)
    assert (watch.read().limit, watch.read().room) == (None, None)
    assert watch.memory is not None
    assert watch.memory.unknown == f"{limit} says 'x': expected a number of bytes"
    limit.write_text(f"{2 * GIB}\n")
    assert watch.read().room == 2 * GIB


def test_nothing_at_all(tmp_path: Path) -> None:
    found = PressureWatch(tmp_path).read()
    assert (found.limit, found.room, found.some_us, found.full_us) == (None, None, None, None)


@settings(max_examples=40)
@given(files=st.lists(st.binary(max_size=60), min_size=8, max_size=8))
def test_no_file_s_content_is_an_error(files: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    machine = FakeMachine(tmp_path_factory.mktemp("fuzz"))
    box = second_group(machine.second() / "box", 4 * GIB)
    (machine.root / "proc/pressure").mkdir()
    names = ["proc/meminfo", "proc/self/cgroup", "proc/self/mountinfo", "proc/pressure/memory"]
    paths = [machine.root / name for name in names]
    paths += [box / f"memory.{name}" for name in ("max", "current", "stat", "high")]
    for path, content in zip(paths, files, strict=True):
        before = path.read_bytes() if path.exists() else b""
        for text in (content, before + content):
            path.write_bytes(text)
            assert decide(State(), PressureWatch(machine.root).read(), 0)[1] == 0
        path.write_bytes(before)


def test_a_limit_that_falls_is_seen_at_once(machine: FakeMachine) -> None:
    box = second_group(machine.second() / "box", 4 * GIB, 2 * GIB)
    watch = PressureWatch(machine.root)
    state, shed, _ = decide(State(), watch.read(), GIB)
    assert shed == 0
    (box / "memory.max").write_text(f"{2 * GIB}\n")
    _, shed, reason = decide(state, watch.read(), GIB)
    assert shed == 64 * MIB * 5 // 4
    assert reason.startswith("the memory limit fell from 4 GiB to 2 GiB")


def test_a_process_that_is_moved_to_another_group_is_noticed(machine: FakeMachine) -> None:
    top = machine.second("/a")
    second_group(top / "a", 4 * GIB)
    second_group(top / "b", 2 * GIB)
    watch = PressureWatch(machine.root)
    assert watch.read().limit == 4 * GIB
    machine.second("/b")
    assert [watch.read().limit for _ in range(20)][-1] == 2 * GIB


SHRINK = """
import sys
from expert_worker.copies import allocate
from expert_worker.pressure import State, decide
from expert_worker.pressure_watch import PressureWatch
import numpy as np
copies = [allocate(1 << 20) for _ in range(128)]
for copy in copies:
    copy[:] = 1
state, watch = State(), PressureWatch()
for line in sys.stdin:
    if line == "take\\n":
        others = np.ones(96 << 20, np.uint8)
    state, shed, reason = decide(state, watch.read(), len(copies) << 20)
    del copies[len(copies) - -(-shed >> 20):]
    print(len(copies) << 20, reason, flush=True)
"""


def test_in_a_real_group_giving_up_copies_keeps_the_process_alive() -> None:
    skip_unless_possible()
    with control_group(memory=256 * MIB) as group:
        child = group.start([sys.executable, "-P", "-c", SHRINK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdin is not None
        assert child.stdout is not None

        def tell(word: str) -> tuple[int, str]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"{word}\n")
            child.stdin.flush()
            copied, _, reason = child.stdout.readline().strip().partition(" ")
            return int(copied), reason

        assert tell("look") == (128 * MIB, "")
        seen = [tell("take"), tell("look"), tell("look")]  # what is not urgent is done when it is seen twice
        (reason,) = filter(None, (reason for _, reason in seen))
        assert reason.startswith("memory is short: the limit is 256 MiB, ")
        assert seen[-1][0] < 128 * MIB
        before = group.usage()
        group.set_limit(before + 8 * MIB)
        copied, reason = tell("look")
        assert 128 * MIB > copied > 0
        assert reason.startswith("the memory limit fell from 256 MiB to ")
        assert group.usage() < before
        child.communicate(timeout=30)
        assert (child.returncode, group.oom_kills()) == (0, 0)
