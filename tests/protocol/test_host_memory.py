"""What memory is left, with and without control groups of both versions, from files as a kernel writes them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from fake_machine import GIB, FakeMachine, first_group, second_group

from protocol.host_memory import HostMemory, host_memory


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def seen(machine: FakeMachine) -> tuple[int, Path | None, str]:
    found = host_memory(machine.root)
    return found.available, found.bound_by, found.unknown


def test_a_machine_without_groups(machine: FakeMachine) -> None:
    assert host_memory(machine.root) == HostMemory(
        total=64 * GIB, available=48 * GIB, bound_by=None, machine_total=64 * GIB, machine_available=48 * GIB
    )


@pytest.mark.parametrize(
    ("limit", "usage", "stat", "room"),
    [
        (56, 40, {"inactive_file": 32}, 48),
        (56, 40, {"inactive_file": 32, "dirty": 4, "writeback": 2}, 42),
        (12, 10, {"inactive_file": 20}, 12),
        (56, 60, {}, 0),
        (8, 6, {"inactive_file": 3, "active_file": 1}, 6),
        (8, 6, {"inactive_file": 1, "dirty": 3}, 2),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_room_under_a_limit(
    machine: FakeMachine, version: int, limit: int, usage: int, stat: dict[str, int], room: int
) -> None:
    machine.memory(256 * GIB, 200 * GIB)
    top, group = (machine.first(), first_group) if version == 1 else (machine.second(), second_group)
    box = group(top / "box", limit * GIB, usage * GIB, **{kind: count * GIB for kind, count in stat.items()})
    found = host_memory(machine.root)
    assert (found.total, found.available, found.bound_by, found.unknown) == (limit * GIB, room * GIB, box, "")


def test_the_tightest_of_all_groups_above_binds(machine: FakeMachine) -> None:
    top = machine.second("/slice/box")
    box = second_group(top / "slice/box", 10 * GIB, GIB)
    tight = second_group(top / "slice", 12 * GIB, 9 * GIB)
    found = host_memory(machine.root)
    assert (found.total, found.available, found.bound_by) == (12 * GIB, 3 * GIB, tight)
    assert [(each.group, each.room) for each in found.groups] == [(box, 9 * GIB), (tight, 3 * GIB)]


def test_the_limit_that_slows_down_binds_too(machine: FakeMachine) -> None:
    box = second_group(machine.second() / "box", 10 * GIB, GIB)
    (box / "memory.high").write_text(f"{4 * GIB}\n")
    assert seen(machine) == (3 * GIB, box, "")


@pytest.mark.parametrize("limit", ["max", 100 * GIB, 2**64 - 1])
def test_a_limit_above_what_the_machine_has_is_none(machine: FakeMachine, limit: object) -> None:
    second_group(machine.second() / "box", limit, 40 * GIB)
    assert seen(machine) == (48 * GIB, None, "")


def test_what_version_1_writes_for_no_limit(machine: FakeMachine) -> None:
    top = machine.first()
    first_group(top, 9223372036854771712)
    box = first_group(top / "box", 4 * GIB, 2 * GIB, inactive_file=GIB)
    assert seen(machine) == (3 * GIB, box, "")


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_that_is_shown_its_own_group_as_the_top(machine: FakeMachine, version: int) -> None:
    name = "/docker/3f1"
    box = (
        first_group(machine.first(name, shown=name), 4 * GIB, GIB)
        if version == 1
        else second_group(machine.second(name, shown=name), 4 * GIB, GIB)
    )
    assert seen(machine) == (3 * GIB, box, "")


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_whose_folder_is_not_there_is_bound_by_those_above(machine: FakeMachine, version: int) -> None:
    name = "/outer/gone/inner"
    outer = (
        first_group(machine.first(name) / "outer", 2 * GIB)
        if version == 1
        else second_group(machine.second(name) / "outer", 2 * GIB)
    )
    assert seen(machine) == (2 * GIB, outer, "")


def test_a_group_of_another_branch_than_the_one_shown_does_not_bind(machine: FakeMachine) -> None:
    second_group(machine.second("/b/own", shown="/a"), GIB)
    assert seen(machine) == (48 * GIB, None, "")


def test_a_group_of_which_nothing_is_mounted_does_not_bind(machine: FakeMachine) -> None:
    machine.first()
    (machine.root / "proc/self/mountinfo").write_text("22 1 254:0 / / rw - ext4 /dev/root rw\n")
    assert seen(machine) == (48 * GIB, None, "")


def test_a_group_for_which_nobody_accounts_memory_does_not_bind(machine: FakeMachine) -> None:
    top = machine.second()
    (top / "box").mkdir()
    (top / "box/cgroup.controllers").write_text("cpu\n")
    assert seen(machine) == (48 * GIB, None, "")


@pytest.mark.parametrize(("own", "shown"), [("/../outside", "/"), ("/", "/..")])
def test_a_group_outside_of_what_is_shown_leaves_nothing(machine: FakeMachine, own: str, shown: str) -> None:
    top = machine.second(own, shown)
    assert seen(machine) == (
        0,
        None,
        f"the memory group of this process, {own}, lies outside of what {top} shows ({shown})",
    )


GOOD = ["inactive_file 1", "active_file 1", "file_dirty 0", "file_writeback 0"]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("memory.max", "8G", "{file} says '8G': expected a number of bytes"),
        ("memory.max", "-1", "{file} says '-1': expected a number of bytes"),
        ("memory.max", "1_000", "{file} says '1_000': expected a number of bytes"),
        ("memory.max", "", "{file} says '': expected a number of bytes"),
        ("memory.max", None, "the memory group {box} states no limit"),
        ("memory.current", "x", "{file} says 'x': expected a number of bytes"),
        ("memory.current", None, "{file} cannot be read: No such file or directory"),
        ("memory.stat", None, "{file} cannot be read: No such file or directory"),
        ("memory.stat", "", "{file} does not state inactive_file, active_file, file_dirty, file_writeback"),
        ("memory.stat", "\n".join(GOOD[:-1]), "{file} does not state file_writeback"),
        ("memory.stat", "\n".join([*GOOD, GOOD[0]]), "{file} has the line 'inactive_file 1': expected one name, "),
        ("memory.stat", "\n".join([*GOOD, "file 1 2"]), "{file} has the line 'file 1 2': expected one name, "),
        ("memory.stat", "\n".join([*GOOD, "file -1"]), "{file} has the line 'file -1': expected one name, "),
        ("memory.stat", "\n".join([*GOOD, "file"]), "{file} has the line 'file': expected one name, "),
    ],
)
def test_what_cannot_be_believed_leaves_nothing(machine: FakeMachine, file: str, text: str | None, reason: str) -> None:
    box = second_group(machine.second() / "box", 8 * GIB)
    if text is None:
        (box / file).unlink()
    else:
        (box / file).write_text(f"{text}\n" if text else "")
    available, bound_by, unknown = seen(machine)
    assert (available, bound_by) == (0, None)
    assert unknown.startswith(reason.format(file=box / file, box=box))


@pytest.mark.parametrize("text", ["", "MemTotal: 1 kB\n", "MemTotal: 1 kB\nMemAvailable: -1 kB\n", None])
def test_a_machine_that_does_not_state_its_memory(machine: FakeMachine, text: str | None) -> None:
    meminfo = machine.root / "proc/meminfo"
    meminfo.unlink() if text is None else meminfo.write_text(text)
    assert seen(machine) == (0, None, f"{meminfo} does not state MemTotal and MemAvailable")


def test_this_machine() -> None:
    found = host_memory()
    assert 0 < found.available <= found.total <= psutil.virtual_memory().total
    assert found.unknown == ""
