"""What an arena refuses: no room, files that are not its own, and files that change."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from arena_process import is_right, load
from small_arena import LAYOUT, completed

from expert_worker import arena_file
from expert_worker.arena_file import sweep
from expert_worker.arena_layout import HEADER_BYTES, MARKS
from expert_worker.shared_arena import Phase, SharedArena
from protocol.errors import ArenaError


def test_no_room_is_an_error_before_anything_is_reserved(
    open_arena: Callable[[], SharedArena], arena_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        f_blocks, f_bavail, f_frsize = 100, 3, 4096

    monkeypatch.setattr(os, "fstatvfs", lambda _: Full)
    with pytest.raises(ArenaError, match=rf"{LAYOUT.bytes} bytes, but 12288 are free in {arena_folder}.*--shm-size"):
        open_arena()
    assert not list(arena_folder.iterdir())


def test_only_who_reserves_memory_has_to_have_the_room(arena_folder: Path) -> None:
    asked = []

    def room() -> int:
        asked.append(len(asked))
        return LAYOUT.bytes - len(asked)

    with pytest.raises(ArenaError, match=r"takes 20480 bytes of memory, but 20479 are to be had"):
        SharedArena.open(LAYOUT, arena_folder, room=room)
    assert not list(arena_folder.iterdir())
    with (
        SharedArena.open(LAYOUT, arena_folder, room=lambda: LAYOUT.bytes) as owner,
        SharedArena.open(LAYOUT, arena_folder, room=room) as other,
    ):
        load(owner, 0)
        owner.close()
        assert other.poll() is Phase.OWNER
        completed(other)
        with SharedArena.open(LAYOUT, arena_folder, room=room) as third:
            assert third.phase is Phase.READY
    assert asked == [0]


def test_room_that_goes_meanwhile_is_an_error_too(
    open_arena: Callable[[], SharedArena], arena_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ArenaError, match=r"arena cannot be used: No space left on device"):
        open_arena()
    assert not list(arena_folder.iterdir())


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


def test_what_is_no_file_of_ours_is_refused(open_arena: Callable[[], SharedArena], arena_folder: Path) -> None:
    path = arena_folder / LAYOUT.file_name
    path.mkdir()
    with pytest.raises(ArenaError, match="cannot be opened: Is a directory"):
        open_arena()
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(ArenaError, match="is not a regular file"):
        open_arena()
    path.unlink()
    path.symlink_to(arena_folder / "elsewhere")
    with pytest.raises(ArenaError, match="cannot be opened: Too many levels of symbolic links"):
        open_arena()
    path.unlink()
    path.touch()
    path.chmod(0o666)
    with pytest.raises(ArenaError, match="can be written by others, its mode is 666"):
        open_arena()
    assert path.exists()
    assert sweep(arena_folder) == []


def test_a_folder_that_is_not_there(arena_folder: Path) -> None:
    with pytest.raises(ArenaError, match="cannot be made: there is no such folder"):
        SharedArena.open(LAYOUT, arena_folder / "nowhere")
    assert sweep(arena_folder / "nowhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_refused_and_not_swept(open_arena: Callable[[], SharedArena], arena_folder: Path) -> None:
    path = arena_folder / LAYOUT.file_name
    path.touch(0o600)
    os.chown(path, 12345, -1)
    with pytest.raises(ArenaError, match="belongs to user 12345, expected 0"):
        open_arena()
    assert sweep(arena_folder) == []
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
    wrong: str, open_arena: Callable[[], SharedArena], arena_folder: Path
) -> None:
    change, text = WRONG[wrong]
    owner, other = open_arena(), open_arena()
    load(owner, 2)
    path = arena_folder / LAYOUT.file_name
    with path.open("r+b") as file:
        change(file)
    owner._file.unlock_filling()
    with pytest.raises(ArenaError, match=f"cannot be used, and not be replaced while others have it: {text}"):
        other.poll()
    old = path.stat().st_ino
    keep = os.open(path, os.O_RDONLY)  # so that the number is not given again
    arena_file.fcntl.flock(owner._file.descriptor, fcntl.LOCK_UN)
    fresh = open_arena()
    assert fresh.wait(10) is Phase.OWNER
    os.close(keep)
    assert path.stat().st_ino != old
    assert fresh.missing() == [0, 1, 2]
    assert is_right(completed(fresh))


def test_a_file_that_is_cut_off_reads_as_zeros_and_is_told(
    open_arena: Callable[[], SharedArena], arena_folder: Path
) -> None:
    arena = completed(open_arena())
    os.truncate(arena_folder / LAYOUT.file_name, HEADER_BYTES)
    assert arena.problem() == (
        f"shared memory {arena.path} changed while in use: its size was 20480 bytes and is 4096 now"
    )
    assert not arena.data(1).any()
    os.truncate(arena_folder / LAYOUT.file_name, LAYOUT.bytes)
    assert (
        arena.problem() == f"shared memory {arena.path} changed while in use: its bytes at offset 12288 cannot be read"
    )


def test_a_file_that_is_written_meanwhile_is_told(open_arena: Callable[[], SharedArena], arena_folder: Path) -> None:
    arena = completed(open_arena())
    os.utime(arena_folder / LAYOUT.file_name, ns=(0, 5))
    assert (arena.problem() or "").endswith(" ns and is 5 ns now")


def test_a_file_that_is_cut_off_while_it_is_loaded_is_not_finished(
    open_arena: Callable[[], SharedArena], arena_folder: Path
) -> None:
    owner, other = open_arena(), open_arena()
    for number in range(3):
        load(owner, number)
    os.truncate(arena_folder / LAYOUT.file_name, HEADER_BYTES)
    with pytest.raises(ArenaError, match="changed: its size was 20480 bytes and is 4096 now"):
        owner.finish()
    assert other.poll() is Phase.WAITING  # it has replaced the file
    assert other.poll() is Phase.OWNER
    assert is_right(completed(other))
