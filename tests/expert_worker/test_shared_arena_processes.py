"""Several processes share an arena: one loads, any may be killed at any moment, and memory has one copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from arena_process import ArenaProcess
from footprint import memory_of

from expert_worker.arena_file import sweep
from expert_worker.arena_layout import ArenaLayout

pytestmark = pytest.mark.timeout(120)

UNITS = tuple((f"layer {number}", 100_000 + number) for number in range(8))
LAYOUT = ArenaLayout(fingerprint="0123456789abcdef", units=UNITS)


@pytest.fixture
def start(arena_folder: Path) -> Iterator[Callable[..., ArenaProcess]]:
    """Starts a process, which ends with the test."""
    with ExitStack() as stack:
        yield lambda layout=LAYOUT: stack.enter_context(ArenaProcess(arena_folder, layout))


def test_of_four_that_start_at_once_one_loads_each_unit(arena_folder: Path, start: Callable[..., ArenaProcess]) -> None:
    four = [start() for _ in range(4)]
    for each in four:
        each.tell("take_part")
    loaded = [each.answer() for each in four]
    assert sorted(map(len, loaded)) == [0, 0, 0, 8]
    assert [each.ask("is_right") for each in four] == [True] * 4
    assert len({each.ask("pages") for each in four}) == 1
    assert [path.name for path in arena_folder.iterdir()] == [LAYOUT.file_name]
    for each in four:
        assert each.ask("close") is None
    assert not list(arena_folder.iterdir())


def test_whoever_waits_goes_on_where_the_killed_owner_stopped(start: Callable[..., ArenaProcess]) -> None:
    owner, *others = (start() for _ in range(3))
    assert owner.ask("open") == "OWNER"
    assert [each.ask("open") for each in others] == ["WAITING"] * 2
    assert owner.ask("load", 4) == [0, 1, 2, 3]
    assert [each.ask("poll") for each in others] == ["WAITING"] * 2
    owner.kill()
    assert others[0].ask("poll") == "OWNER"
    assert others[1].ask("poll") == "WAITING"
    assert others[0].ask("load", 100) == [4, 5, 6, 7]
    assert others[0].ask("finish") is None
    assert others[1].ask("poll") == "READY"
    assert [each.ask("is_right") for each in others] == [True] * 2


def test_an_owner_that_leaves_unfinished_is_followed_too(start: Callable[..., ArenaProcess]) -> None:
    owner, other = start(), start()
    assert owner.ask("open") == "OWNER"
    assert owner.ask("load", 2) == [0, 1]
    assert other.ask("open") == "WAITING"
    assert owner.ask("close") is None
    assert other.ask("wait") == "OWNER"
    assert other.ask("load", 100) == [2, 3, 4, 5, 6, 7]


def test_an_owner_killed_while_it_reserves_memory_is_followed(start: Callable[..., ArenaProcess]) -> None:
    owner, other = start(), start()
    assert owner.ask("open", 4096) == "WAITING"  # for itself
    assert owner.ask("poll") == "WAITING"
    assert other.ask("open") == "WAITING"
    owner.kill()
    assert other.ask("wait") == "OWNER"
    assert other.ask("load", 100) == list(range(8))
    assert other.ask("finish") is None
    assert other.ask("is_right")


def test_models_lie_side_by_side(arena_folder: Path, start: Callable[..., ArenaProcess]) -> None:
    other_layout = ArenaLayout(fingerprint="fedcba9876543210", units=UNITS[1:])
    one, other = start(), start(other_layout)
    assert len(one.ask("take_part")) == 8
    assert len(other.ask("take_part")) == 7
    assert one.ask("is_right")
    assert other.ask("is_right")
    assert one.ask("pages") != other.ask("pages")
    assert one.ask("close") is None
    assert [path.name for path in arena_folder.iterdir()] == [other_layout.file_name]


def test_whoever_waits_is_told_why_it_failed_and_the_next_one_tries_again(start: Callable[..., ArenaProcess]) -> None:
    owner, other, next_one = start(), start(), start()
    assert owner.ask("open") == "OWNER"
    assert owner.ask("load", 3) == [0, 1, 2]
    assert other.ask("open") == "WAITING"
    assert owner.ask("fail", "blk.3 cannot be read") is None
    told = other.ask("poll")["error"]
    assert told.endswith(f"{LAYOUT.file_name} was given up by process {owner.pid}: blk.3 cannot be read")
    assert next_one.ask("open") == "OWNER"
    assert next_one.ask("load", 100) == list(range(8))  # the last one to leave has removed what there was


def test_whoever_comes_while_others_still_have_a_failed_one_loads_what_is_missing(
    start: Callable[..., ArenaProcess],
) -> None:
    owner, other, next_one = start(), start(), start()
    assert owner.ask("open") == "OWNER"
    assert owner.ask("load", 3) == [0, 1, 2]
    assert other.ask("open") == "WAITING"
    assert owner.ask("fail", "blk.3 cannot be read") is None
    assert next_one.ask("open") == "OWNER"
    assert next_one.ask("load", 100) == [3, 4, 5, 6, 7]
    assert next_one.ask("finish") is None
    assert other.ask("poll") == "READY"
    assert other.ask("is_right")


def test_what_killed_processes_left_is_swept_and_nothing_else(
    arena_folder: Path, start: Callable[..., ArenaProcess]
) -> None:
    (arena_folder / "another.arena").touch()
    (arena_folder / f"{LAYOUT.file_name}.txt").touch()
    used = start(ArenaLayout(fingerprint="1", units=UNITS))
    assert len(used.ask("take_part")) == 8
    owner, *others = (start() for _ in range(3))
    assert owner.ask("open") == "OWNER"
    assert owner.ask("load", 3) == [0, 1, 2]
    assert [each.ask("open") for each in others] == ["WAITING"] * 2
    assert sweep(arena_folder) == []
    for each in (owner, *others):
        each.kill()
    assert sweep(arena_folder) == [arena_folder / LAYOUT.file_name]
    assert sweep(arena_folder) == []
    assert len(list(arena_folder.iterdir())) == 3
    assert used.ask("is_right")


def test_what_killed_processes_left_complete_is_used_by_the_next(start: Callable[..., ArenaProcess]) -> None:
    first = start()
    assert len(first.ask("take_part")) == 8
    first.kill()
    second = start()
    assert second.ask("open") == "READY"
    assert second.ask("is_right")


def test_four_users_take_the_memory_of_one_copy(start: Callable[..., ArenaProcess]) -> None:
    layout = ArenaLayout(fingerprint="2", units=tuple((f"layer {number}", 1 << 18) for number in range(256)))
    four = [start(layout) for _ in range(4)]
    assert [each.ask("ready") for each in four] == [True] * 4
    before = sum(memory_of(each.pid).proportional for each in four)
    for each in four:
        each.tell("take_part")
    assert sum(len(each.answer()) for each in four) == 256
    for each in four:
        assert each.ask("is_right")  # each has looked at every byte
    grown = sum(memory_of(each.pid).proportional for each in four) - before
    assert 0.95 * layout.bytes < grown < 1.5 * layout.bytes
