"""A shared arena seen from one process: its phases, who waits for whom, and that nothing is left."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from arena_process import is_right, load
from small_arena import LAYOUT, completed

from expert_worker import arena_file, arena_header, shared_arena
from expert_worker.arena_file import sweep
from expert_worker.arena_header import Progress
from expert_worker.arena_layout import HEADER_BYTES
from expert_worker.shared_arena import Phase, SharedArena
from protocol.errors import ArenaError


def test_one_owner_then_all_read_the_same_and_cannot_write(
    open_arena: Callable[[], SharedArena], arena_folder: Path
) -> None:
    owner, other = open_arena(), open_arena()
    assert (owner.phase, other.phase) == (Phase.OWNER, Phase.WAITING)
    assert (arena_folder / LAYOUT.file_name).stat().st_mode & 0o777 == 0o600
    assert owner.missing() == [0, 1, 2]
    assert [owner.unit_view(number).size for number in range(3)] == [5000, 4096, 1]
    assert all(owner.unit_view(number).ctypes.data % 4096 == 0 for number in range(3))
    load(owner, 1)
    assert owner.missing() == [0, 2]
    assert owner.loaded_bytes == other.loaded_bytes == 4096
    assert other.poll() is Phase.WAITING
    completed(owner)
    assert (owner.phase, other.poll(), open_arena().phase) == (Phase.READY, Phase.READY, Phase.READY)
    assert owner.pages == other.pages != ""
    for each in (owner, other):
        assert is_right(each)
        assert each.problem() is None
        assert each.missing() == []
        with pytest.raises(ValueError, match="read-only"):
            each.data(0)[0] = 1


def test_each_phase_allows_its_own(open_arena: Callable[[], SharedArena]) -> None:
    owner, other = open_arena(), open_arena()
    with pytest.raises(ValueError, match="is WAITING, expected OWNER"):
        other.unit_view(0)
    with pytest.raises(ValueError, match="is WAITING, expected OWNER"):
        other.mark(0)
    with pytest.raises(ValueError, match="is OWNER, expected READY"):
        owner.data(0)
    with pytest.raises(ValueError, match="has units 0 to 2, found -1"):
        owner.mark(-1)
    with pytest.raises(ValueError, match="has units 0 to 2, found 3"):
        owner.mark(3)
    load(owner, 0)
    with pytest.raises(ValueError, match="2 units are missing, first 'up'"):
        owner.finish()
    completed(owner)
    with pytest.raises(ValueError, match="is READY, expected OWNER"):
        owner.mark(0)
    owner.close()
    owner.close()
    for use in (owner.poll, lambda: owner.data(0), owner.problem, lambda: owner.pages, lambda: owner.loaded_bytes):
        with pytest.raises(ValueError, match="is closed"):
            use()


def test_data_outlives_the_arena_and_its_file(open_arena: Callable[[], SharedArena], arena_folder: Path) -> None:
    owner = completed(open_arena())
    data, before = owner.data(0), owner.data(0).copy()
    owner.close()
    assert not list(arena_folder.iterdir())
    assert np.array_equal(data, before)
    again = open_arena()  # while the old bytes are still mapped
    assert again.phase is Phase.OWNER
    again.unit_view(0)[:] = 0
    assert np.array_equal(data, before)


def test_a_file_that_lost_its_name_is_no_longer_joined(
    open_arena: Callable[[], SharedArena], arena_folder: Path
) -> None:
    first = completed(open_arena())
    (arena_folder / LAYOUT.file_name).unlink()
    second = open_arena()
    assert second.phase is Phase.OWNER
    assert second.pages != first.pages
    first.close()  # which must not take the second one's name
    assert (arena_folder / LAYOUT.file_name).exists()
    assert first.path == second.path


def test_a_file_removed_while_it_is_opened_is_made_again(
    open_arena: Callable[[], SharedArena], arena_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, removed = fcntl.flock, []

    def removing(descriptor: int, kind: int) -> None:
        if not removed:
            removed.append(descriptor)
            (arena_folder / LAYOUT.file_name).unlink()
        really(descriptor, kind)

    monkeypatch.setattr(arena_file.fcntl, "flock", removing)
    arena = open_arena()
    assert removed
    assert arena.phase is Phase.OWNER
    assert (arena_folder / LAYOUT.file_name).stat().st_size == LAYOUT.bytes


def test_a_file_that_stays_locked_is_given_up(
    open_arena: Callable[[], SharedArena], arena_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_file, "OPEN_WITHIN_S", 0.05)
    with (arena_folder / LAYOUT.file_name).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ArenaError, match="has been locked by another process"):
            open_arena()
    assert open_arena().phase is Phase.OWNER


def test_the_lock_for_filling_survives_that_the_file_is_closed_elsewhere(
    open_arena: Callable[[], SharedArena], arena_folder: Path
) -> None:
    owner = open_arena()
    assert sweep(arena_folder) == []  # which opens and closes it
    assert open_arena().phase is Phase.WAITING
    completed(owner)


def test_memory_is_reserved_step_by_step(
    open_arena: Callable[[], SharedArena], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_arena, "RESERVE_STEP", 5000)
    arena, phases = open_arena(), []
    while (phase := arena.poll()) is Phase.WAITING:
        phases.append(phase)
        assert arena.reserving
    assert len(phases) == -(-LAYOUT.bytes // 5000) - 2  # but for the first and the last
    assert phase is Phase.OWNER
    assert not arena.reserving


def test_a_frozen_owner_is_waited_for_only_so_long(open_arena: Callable[[], SharedArena], arena_folder: Path) -> None:
    time_s = [0.0]
    owner = open_arena()
    other = SharedArena.open(LAYOUT, arena_folder, patience_s=10, now=lambda: time_s[0])
    for time_s[0] in (9.0, 10.0):
        assert other.poll() is Phase.WAITING
    load(owner, 0)
    for time_s[0] in (15.0, 25.0):
        assert other.poll() is Phase.WAITING
    time_s[0] = 25.1
    with pytest.raises(ArenaError, match=rf"process {os.getpid()} loads it, but has not got on for 10 s"):
        other.poll()
    assert completed(owner).phase is Phase.READY


def test_a_reason_of_any_length_is_told(open_arena: Callable[[], SharedArena]) -> None:
    owner, other = open_arena(), open_arena()
    owner.fail("ä" * 5000)
    with pytest.raises(ArenaError, match=r"was given up by process [0-9]+: ä{400}"):
        other.poll()


def test_cycles_leave_no_descriptor_no_mapping_and_no_file(arena_folder: Path) -> None:
    def left() -> tuple[int, list[str]]:
        return len(re.findall(r"\.arena", Path("/proc/self/maps").read_text())), os.listdir(arena_folder)

    before, descriptors = left(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with SharedArena.open(LAYOUT, arena_folder) as owner, SharedArena.open(LAYOUT, arena_folder) as other:
            completed(owner)
            assert other.poll() is Phase.READY
            assert other.data(0).size == 5000
        with SharedArena.open(LAYOUT, arena_folder) as owner:
            owner.fail("for a test")
        with pytest.raises(ArenaError):
            SharedArena.open(LAYOUT, arena_folder / "nowhere")
    assert left() == before
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # fewer, if something of another test has ended


def test_the_header_names_this_process(open_arena: Callable[[], SharedArena], arena_folder: Path) -> None:
    arena = open_arena()
    page = (arena_folder / LAYOUT.file_name).read_bytes()[:HEADER_BYTES]
    found = arena_header.decode(page, (arena_folder / LAYOUT.file_name).stat(), LAYOUT)
    assert found is not None
    assert (found.progress, found.owner, found.marks) == (Progress.LOADING, os.getpid(), bytes(3))
    assert found.owner_start > 0
    assert arena_header.owner_of(page) == os.getpid()
    assert arena_header.owner_of(b"") == 0
    assert arena.phase is Phase.OWNER
