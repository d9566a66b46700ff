"""A cache knows what is there, whoever ended when, and says it when the disk is full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from open_cache import open_cache

import expert_worker.weights.cache as cache_module
from expert_worker.weights.cache import BLOCK_BYTES, Cache, marks_path
from expert_worker.weights.marks import Marks
from protocol.errors import ModelError, RoomError
from protocol.messages import U8
from protocol.model import Model


def bytes_of(model: Path, cache: Cache, number: int) -> U8:
    """What the whole file has of a piece."""
    piece = cache.grid.piece(number)
    return np.fromfile(model, np.uint8, piece.bytes, offset=piece.offset)


def test_what_was_committed_is_there_for_the_next_process_and_what_was_not_is_not(
    tiny_model: Path, tmp_path: Path
) -> None:
    with open_cache(tiny_model, tmp_path) as (cache, _):
        for number in (3, 5):
            cache.write(number, bytes_of(tiny_model, cache, number))
        assert not cache.has(3)
        cache.commit()
        cache.write(4, bytes_of(tiny_model, cache, 4))
    with open_cache(tiny_model, tmp_path) as (cache, filling):
        assert [number for number in range(8) if cache.has(number)] == [3, 5]
        assert cache.forget_holes() == 0
        piece = cache.grid.piece(5)
        here = filling.files.files[0].file.data[piece.offset : piece.offset + piece.bytes]
        np.testing.assert_array_equal(here, bytes_of(tiny_model, cache, 5))


def test_much_is_committed_on_the_way(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "COMMIT_BYTES", 1)
    with open_cache(tiny_model, tmp_path) as (cache, _):
        cache.write(0, bytes_of(tiny_model, cache, 0))
        assert cache.has(0)


def test_a_mark_is_never_ahead_of_its_bytes(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(cache_module.os, "fdatasync", lambda file: done.append("synced"))
    monkeypatch.setattr(Marks, "set", lambda self, numbers: done.append("marked"))
    with open_cache(tiny_model, tmp_path) as (cache, _):
        cache.write(0, bytes_of(tiny_model, cache, 0))
        cache.commit()
    assert done == ["synced", "marked"]


def test_writing_is_no_change_of_the_file_and_shrinking_is(tiny_model: Path, tmp_path: Path) -> None:
    with open_cache(tiny_model, tmp_path) as (cache, filling):
        cache.write(0, bytes_of(tiny_model, cache, 0))
        assert filling.files.changed() is None
        cache.commit()
        assert filling.files.changed() is None
        os.truncate(tmp_path / tiny_model.name, 1 << 16)
        assert "its size was" in str(filling.files.changed())


def test_a_hollow_file_is_no_model_for_anybody_else(tiny_model: Path, tmp_path: Path) -> None:
    with open_cache(tiny_model, tmp_path) as (_, filling), Model.open(tiny_model) as whole:
        assert filling.fingerprint == whole.fingerprint
    with pytest.raises(ModelError, match="were never written"):
        Model.open(tmp_path / tiny_model.name)


def test_marks_of_holes_are_taken_back(tiny_model: Path, tmp_path: Path) -> None:
    with open_cache(tiny_model, tmp_path) as (cache, _):
        cache.write(0, bytes_of(tiny_model, cache, 0))
        cache.commit()
        Marks(marks_path(tmp_path), cache.grid.count).set([0, 1, 2, cache.grid.count - 1])
        lost = cache.forget_holes()
        assert lost == 3
        assert cache.has(0)
        assert not any(cache.has(number) for number in (1, 2, cache.grid.count - 1))


def test_marks_that_were_cut_short_are_none(tiny_model: Path, tmp_path: Path) -> None:
    with open_cache(tiny_model, tmp_path) as (cache, _):
        Marks(marks_path(tmp_path), cache.grid.count).set([0, cache.grid.count - 1])
        os.truncate(marks_path(tmp_path), 3)
        assert cache.has(0)
        assert not cache.has(cache.grid.count - 1)
        assert cache.missing_bytes(np.ones((4, 16), np.uint8)) > 0


def test_a_claim_is_one_process_s_and_goes_with_it(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks", 10)
    program = f"""
from pathlib import Path
from expert_worker.weights.marks import Marks
marks = Marks(Path({str(tmp_path / "marks")!r}), 10)
print(marks.claim(4), marks.claim(5), flush=True)
input()
"""
    assert marks.claim(5)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True False\n"
        assert not marks.claim(4)
        assert marks.claim(6)
        other.kill()
    assert marks.claim(4)
    marks.close()


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_cache(tiny_model, tmp_path) as (cache, _):
        state = os.statvfs(tmp_path)
        free = state.f_bavail * state.f_frsize
        cache.check_room(free // 2)
        with pytest.raises(RoomError, match=r"tmp.*: 1,048,576\.0 MiB more are needed .* MiB are free on that disk"):
            cache.check_room(1 << 40)


def test_a_small_disk_has_room_for_some_of_every_layer_and_for_what_is_there(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_cache(tiny_model, tmp_path) as (cache, filling):
        assert cache.fitting(1) is None
        blob = filling.layout.largest_blob + 3 * BLOCK_BYTES
        for number in cache.grid.of(2, np.array([9])).tolist():
            cache.write(number, bytes_of(tiny_model, cache, number))
        cache.commit()
        monkeypatch.setattr(cache, "_free", lambda: blob * 22)  # of which a twentieth is left to others
        one, again, other = cache.fitting(1), cache.fitting(1), cache.fitting(2)
        assert one is not None
        assert again is not None
        assert other is not None
        np.testing.assert_array_equal(one, again)
        assert (one != other).any()
        assert one.sum() == other.sum() == 21
        assert one[2, 9] == other[2, 9] == 1
        assert one.sum(axis=1).min() == 5
        monkeypatch.setattr(cache, "_free", lambda: 0)
        nothing = cache.fitting(1)
        assert nothing is not None
        np.testing.assert_array_equal(nothing, cache.there())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_that_becomes_full_is_told(
    code: int, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, data: object, offset: int) -> None:
        raise OSError(code, os.strerror(code))

    with open_cache(tiny_model, tmp_path) as (cache, _):
        monkeypatch.setattr(cache_module, "write_all", full)
        with pytest.raises(RoomError, match=f"weights cannot be written: {os.strerror(code)}"):
            cache.write(0, bytes_of(tiny_model, cache, 0))
        cache.commit()
        assert not cache.has(0)
