"""A shared arena seen from one process: phases, refusals, what becomes of a bad file, and that nothing is left."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from arena_process import is_right, load

from expert_worker import arena_file, arena_header, shared_arena
from expert_worker.arena_file import sweep
from expert_worker.arena_header import Progress
from expert_worker.arena_layout import HEADER_BYTES, MARKS, ArenaLayout
from expert_worker.shared_arena import Phase, SharedArena
from protocol.errors import ArenaError

LAYOUT = ArenaLayout(fingerprint="0123456789abcdef", units=(("gate", 5000), ("up", 4096), ("down", 1)))


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, as the real one."""
    with TemporaryDirectory(dir="/dev/shm", prefix="expertmesh-test-") as name:
        yield Path(name)


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[[], SharedArena]]:
    """Opens the arena once more; closed with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(SharedArena.open(LAYOUT, folder))


def completed(arena: SharedArena) -> SharedArena:
    for number in arena.missing():
        load(arena, number)
    arena.finish()
    return arena


def test_one_owner_then_all_read_the_same_and_cannot_write(opened: Callable[[], SharedArena], folder: Path) -> None:
    owner, other = opened(), opened()
    assert (owner.phase, other.phase) == (Phase.OWNER, Phase.WAITING)
    assert (folder / LAYOUT.file_name).stat().st_mode & 0o777 == 0o600
    assert owner.missing() == [0, 1, 2]
    assert [owner.unit_view(number).size for number in range(3)] == [5000, 4096, 1]
    assert all(owner.unit_view(number).ctypes.data % 4096 == 0 for number in range(3))
    load(owner, 1)
    assert owner.missing() == [0, 2]
    assert owner.loaded_bytes == other.loaded_bytes == 4096
    assert other.poll() is Phase.WAITING
    completed(owner)
    assert (owner.phase, other.poll(), opened().phase) == (Phase.READY, Phase.READY, Phase.READY)
    assert owner.pages == other.pages != ""
    for each in (owner, other):
        assert is_right(each)
        assert each.problem() is None
        assert each.missing() == []
        with pytest.raises(ValueError, match="read-only"):
            each.data(0)[0] = 1


def test_each_phase_allows_its_own(opened: Callable[[], SharedArena]) -> None:
    owner, other = opened(), opened()
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


def test_data_outlives_the_arena_and_its_file(opened: Callable[[], SharedArena], folder: Path) -> None:
    owner = completed(opened())
    data, before = owner.data(0), owner.data(0).copy()
    owner.close()
    assert not list(folder.iterdir())
    assert np.array_equal(data, before)
    again = opened()  # while the old bytes are still mapped
    assert again.phase is Phase.OWNER
    again.unit_view(0)[:] = 0
    assert np.array_equal(data, before)


def test_a_file_that_lost_its_name_is_no_longer_joined(opened: Callable[[], SharedArena], folder: Path) -> None:
    first = completed(opened())
    (folder / LAYOUT.file_name).unlink()
    second = opened()
    assert second.phase is Phase.OWNER
    assert second.pages != first.pages
    first.close()  # which must not take the second one's name
    assert (folder / LAYOUT.file_name).exists()
    assert first.path == second.path


def test_a_file_removed_while_it_is_opened_is_made_again(
    opened: Callable[[], SharedArena], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, removed = fcntl.flock, []

    def removing(descriptor: int, kind: int) -> None:
        if not removed:
            removed.append(descriptor)
            (folder / LAYOUT.file_name).unlink()
        really(descriptor, kind)

    monkeypatch.setattr(arena_file.fcntl, "flock", removing)
    arena = opened()
    assert removed
    assert arena.phase is Phase.OWNER
    assert (folder / LAYOUT.file_name).stat().st_size == LAYOUT.bytes


def test_a_file_that_stays_locked_is_given_up(
    opened: Callable[[], SharedArena], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_file, "OPEN_WITHIN_S", 0.05)
    with (folder / LAYOUT.file_name).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ArenaError, match="has been locked by another process"):
            opened()
    assert opened().phase is Phase.OWNER


def test_the_lock_for_filling_survives_that_the_file_is_closed_elsewhere(
    opened: Callable[[], SharedArena], folder: Path
) -> None:
    owner = opened()
    assert sweep(folder) == []  # which opens and closes it
    assert opened().phase is Phase.WAITING
    completed(owner)


def test_memory_is_reserved_step_by_step(opened: Callable[[], SharedArena], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_arena, "RESERVE_STEP", 5000)
    arena, phases = opened(), []
    while (phase := arena.poll()) is Phase.WAITING:
        phases.append(phase)
        assert arena.reserving
    assert len(phases) == -(-LAYOUT.bytes // 5000) - 2  # but for the first and the last
    assert phase is Phase.OWNER
    assert not arena.reserving


def test_a_frozen_owner_is_waited_for_only_so_long(opened: Callable[[], SharedArena], folder: Path) -> None:
    time_s = [0.0]
    owner = opened()
    other = SharedArena.open(LAYOUT, folder, patience_s=10, now=lambda: time_s[0])
    for time_s[0] in (9.0, 10.0):
        assert other.poll() is Phase.WAITING
    load(owner, 0)
    for time_s[0] in (15.0, 25.0):
        assert other.poll() is Phase.WAITING
    time_s[0] = 25.1
    with pytest.raises(ArenaError, match=rf"process {os.getpid()} loads it, but has not got on for 10 s"):
        other.poll()
    assert completed(owner).phase is Phase.READY


def test_no_room_is_an_error_before_anything_is_reserved(
    opened: Callable[[], SharedArena], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        f_blocks, f_bavail, f_frsize = 100, 3, 4096

    monkeypatch.setattr(os, "fstatvfs", lambda _: Full)
    with pytest.raises(ArenaError, match=rf"takes {LAYOUT.bytes} bytes, but 12288 are free in {folder}.*--shm-size"):
        opened()
    assert not list(folder.iterdir())


def test_only_who_reserves_memory_has_to_have_the_room(folder: Path) -> None:
    asked = []

    def room() -> int:
        asked.append(len(asked))
        return LAYOUT.bytes - len(asked)

    with pytest.raises(ArenaError, match=r"takes 20480 bytes of memory, but 20479 are to be had"):
        SharedArena.open(LAYOUT, folder, room=room)
    assert not list(folder.iterdir())
    with (
        SharedArena.open(LAYOUT, folder, room=lambda: LAYOUT.bytes) as owner,
        SharedArena.open(LAYOUT, folder, room=room) as other,
    ):
        load(owner, 0)
        owner.close()
        assert other.poll() is Phase.OWNER
        completed(other)
        with SharedArena.open(LAYOUT, folder, room=room) as third:
            assert third.phase is Phase.READY
    assert asked == [0]


def test_room_that_goes_meanwhile_is_an_error_too(
    opened: Callable[[], SharedArena], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ArenaError, match=r"arena cannot be used: No space left on device"):
        opened()
    assert not list(folder.iterdir())


def test_a_real_file_system_that_is_too_small(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=False, timeout=30)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(ArenaError, match=r"takes 20480 bytes, but 16384 are free"):
            SharedArena.open(LAYOUT, tmp_path)
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True, timeout=30)


def test_what_is_no_file_of_ours_is_refused(opened: Callable[[], SharedArena], folder: Path) -> None:
    path = folder / LAYOUT.file_name
    path.mkdir()
    with pytest.raises(ArenaError, match="cannot be opened: Is a directory"):
        opened()
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(ArenaError, match="is not a regular file"):
        opened()
    path.unlink()
    path.symlink_to(folder / "elsewhere")
    with pytest.raises(ArenaError, match="cannot be opened: Too many levels of symbolic links"):
        opened()
    path.unlink()
    path.touch()
    path.chmod(0o666)
    with pytest.raises(ArenaError, match="can be written by others, its mode is 666"):
        opened()
    assert path.exists()
    assert sweep(folder) == []


def test_a_folder_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ArenaError, match="cannot be made: there is no such folder"):
        SharedArena.open(LAYOUT, folder / "nowhere")
    assert sweep(folder / "nowhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_refused_and_not_swept(opened: Callable[[], SharedArena], folder: Path) -> None:
    path = folder / LAYOUT.file_name
    path.touch(0o600)
    os.chown(path, 12345, -1)
    with pytest.raises(ArenaError, match="belongs to user 12345, expected 0"):
        opened()
    assert sweep(folder) == []
    assert path.exists()


WRONG = {
    "size": (lambda file: file.truncate(LAYOUT.bytes + 1), "its size is 20481, expected 20480"),
    "magic": (lambda file: file.write(b"SHMEMORY"), r"its magic is b'SHMEMORY', expected b'XMARENA\\x00'"),
    "version": (lambda file: put(file, 8, 7), "its version is 7, expected 1"),
    "header": (lambda file: put(file, 12, 8192), "its header's size is 8192, expected 4096"),
    "stated size": (lambda file: put(file, 16, 5), "its stated size is 5, expected 20480"),
    "units": (lambda file: put(file, 24, 4), "its number of units is 4, expected 3"),
    "state": (lambda file: put(file, 28, 9), "its state is 9, expected one of 1, 2, 3"),
    "ready": (lambda file: put(file, 28, 2), "it is ready with 1 of 3 units"),
    "boot": (lambda file: write(file, 44, b"x"), "its machine's boot is 'x"),
    "fingerprint": (lambda file: write(file, 84, b"f"), "its model's fingerprint is 'f123.*', expected '0123"),
    "digest": (lambda file: write(file, 116, b"xyz"), f"its layout's digest is 'xyz.*', expected '{LAYOUT.digest}'"),
    "marks": (lambda file: write(file, MARKS, b"\3"), "a unit's mark is 3, expected 0 or 1"),
    "holes": (
        lambda file: (file.truncate(4096), file.truncate(LAYOUT.bytes)),
        "4096 bytes are reserved for it, expected 20480",
    ),
}


def write(file: object, offset: int, data: bytes) -> None:
    os.pwrite(file.fileno(), data, offset)  # type: ignore[attr-defined]


def put(file: object, offset: int, number: int) -> None:
    write(file, offset, number.to_bytes(4, "little"))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_not_what_its_name_says_is_refused_while_used_and_replaced_else(
    wrong: str, opened: Callable[[], SharedArena], folder: Path
) -> None:
    change, text = WRONG[wrong]
    owner, other = opened(), opened()
    load(owner, 2)
    path = folder / LAYOUT.file_name
    with path.open("r+b") as file:
        change(file)
    owner._file.unlock_filling()
    with pytest.raises(ArenaError, match=f"cannot be used, and not be replaced while others have it: {text}"):
        other.poll()
    old = path.stat().st_ino
    keep = os.open(path, os.O_RDONLY)  # so that the number is not given again
    arena_file.fcntl.flock(owner._file.descriptor, fcntl.LOCK_UN)
    fresh = opened()
    assert fresh.wait(10) is Phase.OWNER
    os.close(keep)
    assert path.stat().st_ino != old
    assert fresh.missing() == [0, 1, 2]
    assert is_right(completed(fresh))


def test_a_file_that_is_cut_off_reads_as_zeros_and_is_told(opened: Callable[[], SharedArena], folder: Path) -> None:
    arena = completed(opened())
    os.truncate(folder / LAYOUT.file_name, HEADER_BYTES)
    assert arena.problem() == (
        f"shared memory {arena.path} changed while in use: its size was 20480 bytes and is 4096 now"
    )
    assert not arena.data(1).any()
    os.truncate(folder / LAYOUT.file_name, LAYOUT.bytes)
    assert (
        arena.problem() == f"shared memory {arena.path} changed while in use: its bytes at offset 12288 cannot be read"
    )


def test_a_file_that_is_written_meanwhile_is_told(opened: Callable[[], SharedArena], folder: Path) -> None:
    arena = completed(opened())
    os.utime(folder / LAYOUT.file_name, ns=(0, 5))
    assert (arena.problem() or "").endswith(" ns and is 5 ns now")


def test_a_file_that_is_cut_off_while_it_is_loaded_is_not_finished(
    opened: Callable[[], SharedArena], folder: Path
) -> None:
    owner, other = opened(), opened()
    for number in range(3):
        load(owner, number)
    os.truncate(folder / LAYOUT.file_name, HEADER_BYTES)
    with pytest.raises(ArenaError, match="changed: its size was 20480 bytes and is 4096 now"):
        owner.finish()
    assert other.poll() is Phase.WAITING  # it has replaced the file
    assert other.poll() is Phase.OWNER
    assert is_right(completed(other))


def test_a_reason_of_any_length_is_told(opened: Callable[[], SharedArena]) -> None:
    owner, other = opened(), opened()
    owner.fail("ä" * 5000)
    with pytest.raises(ArenaError, match=r"was given up by process [0-9]+: ä{400}"):
        other.poll()


def test_cycles_leave_no_descriptor_no_mapping_and_no_file(folder: Path) -> None:
    def left() -> tuple[int, int, list[str]]:
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), len(re.findall(r"\.arena", maps)), os.listdir(folder)

    before = left()
    for _ in range(20):
        with SharedArena.open(LAYOUT, folder) as owner, SharedArena.open(LAYOUT, folder) as other:
            completed(owner)
            assert other.poll() is Phase.READY
            assert other.data(0).size == 5000
        with SharedArena.open(LAYOUT, folder) as owner:
            owner.fail("for a test")
        with pytest.raises(ArenaError):
            SharedArena.open(LAYOUT, folder / "nowhere")
    assert left() == before


def test_the_header_names_this_process(opened: Callable[[], SharedArena], folder: Path) -> None:
    arena = opened()
    page = (folder / LAYOUT.file_name).read_bytes()[:HEADER_BYTES]
    found = arena_header.decode(page, (folder / LAYOUT.file_name).stat(), LAYOUT)
    assert found is not None
    assert (found.progress, found.owner, found.marks) == (Progress.LOADING, os.getpid(), bytes(3))
    assert found.owner_start > 0
    assert arena_header.owner_of(page) == os.getpid()
    assert arena_header.owner_of(b"") == 0
    assert arena.phase is Phase.OWNER
