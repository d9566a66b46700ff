"""Packs: what is in them, and that they appear whole, at once, and after any interruption."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import packed_rows
import pytest
from gguf_bytes import RawTensor, moe_bytes
from local_engine import local_engine, read
from packs import pack_of, plan_of, shares_of
from split_models import split_model

from coordinator import packing
from coordinator.packing import Progress, partial_path, write_pack
from protocol import pack_plan
from protocol.errors import ExpertmeshError, ModelError
from protocol.gguf import GgufFile
from protocol.layout import expert_tensor, layer_of_experts
from protocol.model import Model
from protocol.pack import PACKABLE, Share

IDS = list(range(40))


def done(path: Path, out: Path, share: Share | None = None, most: int | None = None) -> list[Progress]:
    """Up to `most` steps of making a pack."""
    with Model.open(path) as model:
        steps = write_pack(model, plan_of(model, share), out)
        found = [step for step, _ in zip(steps, range(10**6 if most is None else most), strict=False)]
        steps.close()
        return found


# --- what is in them --------------------------------------------------------------------------------------------------


def test_every_tensor_is_that_of_the_model_and_quantised_ones_are_packed(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    path = small_model("mixed")
    with GgufFile.open(path) as source, GgufFile.open(pack_of(path, tmp_path / "p.gguf")) as packed:
        assert source.tensors.keys() == packed.tensors.keys()
        assert packed.alignment == 64
        kept = {key for key in source.metadata if key != "general.alignment"}
        assert {key for key in packed.metadata if not key.startswith("expertmesh.pack.")} == {
            *kept,
            "general.alignment",
        }
        for name, tensor in source.tensors.items():
            found = packed.tensors[name]
            assert (found.type, found.shape, found.bytes) == (tensor.type, tensor.shape, tensor.bytes)
            assert found.packed == (tensor.type in PACKABLE and len(tensor.shape) > 1)
            columns, rows, *matrices = (*tensor.shape, 1)[:3]
            expected = tensor.data
            if found.packed:
                each = tensor.data.reshape(matrices[0] if matrices else 1, -1)
                expected = np.concatenate([packed_rows.packed(tensor.type, rows, columns, one) for one in each])
            np.testing.assert_array_equal(found.data, expected)


def test_the_number_in_the_file_is_one_that_other_programs_do_not_know(tiny_model: Path, tmp_path: Path) -> None:
    with GgufFile.open(pack_of(tiny_model, tmp_path / "p.gguf")) as packed:
        assert {tensor.type for tensor in packed.header.tensors} == {0, 1008}


@pytest.mark.parametrize("name", ["mixed", "short", "k", "dense-first", "float-mix"])
def test_a_pack_gives_the_logits_and_the_fingerprint_of_the_model(
    small_model: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    path = small_model(name)
    pack = pack_of(path, tmp_path / "p.gguf")
    with Model.open(path) as one, Model.open(pack) as other:
        assert one.fingerprint == other.fingerprint
    with local_engine(path) as here, local_engine(pack) as there:
        np.testing.assert_array_equal(read(here, IDS).view(np.uint32), read(there, IDS).view(np.uint32))


def test_small_pieces_make_the_same_pack(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pack_of(tiny_model, tmp_path / "a.gguf").read_bytes()
    monkeypatch.setattr(pack_plan, "PIECE_BYTES", 1)
    assert pack_of(tiny_model, tmp_path / "b.gguf").read_bytes() == whole


def test_a_split_model_becomes_one_file(tiny_model: Path, tmp_path: Path) -> None:
    paths = split_model(tiny_model, tmp_path / "split", 4)
    with Model.open(paths[0]) as split, Model.open(pack_of(paths[2], tmp_path / "p.gguf")) as packed:
        assert packed.fingerprint == split.fingerprint
        assert len(packed.files.files) == 1
        assert not [key for key in packed.files.metadata if key.startswith("split.")]
        assert packed.files.tensors.keys() == split.files.tensors.keys()


def test_a_share_is_the_same_from_the_model_and_from_its_pack(tiny_model: Path, tmp_path: Path) -> None:
    share = Share(number=2, count=3)
    one = pack_of(tiny_model, tmp_path / "a.gguf", share)
    other = pack_of(pack_of(tiny_model, tmp_path / "p.gguf"), tmp_path / "b.gguf", share)
    assert one.read_bytes() == other.read_bytes()


def test_shares_take_the_room_of_their_experts(demo_model: Path, tmp_path: Path) -> None:
    shares = shares_of(demo_model, tmp_path / "s", 4)
    with Model.open(demo_model) as model:
        assert sum(path.stat().st_blocks * 512 for path in shares) < 1.3 * model.files.files[0].file.size
        for path in shares:
            with Model.open(path) as share:
                assert share.there is not None
                assert 20 <= share.there.sum() <= 28
                assert share.fingerprint == model.fingerprint


def test_a_share_has_nothing_of_layers_that_the_metadata_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    name = expert_tensor(7, "up")
    path.write_bytes(moe_bytes(tensors={name: RawTensor(name=name, shape=(64, 96, 4))}))
    with Model.open(path) as model:
        tensors = plan_of(model, Share(number=1, count=2)).tensors
    assert {layer_of_experts(tensor.source.name) for tensor in tensors} == {0, 1}


def test_packs_are_not_made_of_shares(tiny_model: Path, tmp_path: Path) -> None:
    (share, _) = shares_of(tiny_model, tmp_path / "s", 2)
    with pytest.raises(
        ModelError, match=r"share 1 of 2 of the experts of 'tiny.gguf', for a worker; packs are made of"
    ):
        pack_of(share, tmp_path / "p.gguf")


# --- interruptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [None, Share(number=1, count=2)])
def test_after_any_interruption_the_rest_is_done_and_the_pack_is_the_same(
    tiny_model: Path, tmp_path: Path, share: Share | None
) -> None:
    whole = pack_of(tiny_model, tmp_path / "whole.gguf", share).read_bytes()
    total = len(done(tiny_model, tmp_path / "count.gguf", share))
    with Model.open(tiny_model) as model:
        first = len(list(plan_of(model, share).tensors[0].pieces()))
    for most in range(0, total, 23):
        out = tmp_path / f"{most}.gguf"
        done(tiny_model, out, share, most)
        assert not out.exists()
        assert partial_path(out).exists()
        again = done(tiny_model, out, share)
        assert out.read_bytes() == whole
        assert not partial_path(out).exists()
        assert any(step.again for step in again) == (most > first)


def test_what_was_finished_is_read_again_before_it_is_trusted(tiny_model: Path, tmp_path: Path) -> None:
    whole, out = pack_of(tiny_model, tmp_path / "whole.gguf").read_bytes(), tmp_path / "p.gguf"
    done(tiny_model, out, most=12)
    with Model.open(tiny_model) as model:
        first = plan_of(model).tensors[0]
    with partial_path(out).open("r+b") as file:
        file.seek(first.offset + first.bytes // 2)
        file.write(b"spoilt")
    again = done(tiny_model, out)
    assert not again[0].again
    assert any(step.again for step in again)
    assert out.read_bytes() == whole


def test_an_end_just_before_the_new_name_is_made_good(tiny_model: Path, tmp_path: Path) -> None:
    whole, out = pack_of(tiny_model, tmp_path / "whole.gguf"), tmp_path / "p.gguf"
    expected = whole.read_bytes()
    whole.rename(partial_path(out))
    assert all(step.again for step in done(tiny_model, out))
    assert out.read_bytes() == expected


@pytest.mark.parametrize("content", [b"", bytes(100), bytes(4) + b"rest of a header"])
def test_an_end_before_anything_was_noted_is_a_beginning(tiny_model: Path, tmp_path: Path, content: bytes) -> None:
    whole, out = pack_of(tiny_model, tmp_path / "whole.gguf").read_bytes(), tmp_path / "p.gguf"
    partial_path(out).write_bytes(content)
    done(tiny_model, out)
    assert out.read_bytes() == whole


@pytest.mark.timeout(60)
def test_a_process_that_is_killed_leaves_what_the_next_one_goes_on_with(tiny_model: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom coordinator.packing import write_pack\n"
        "from protocol.model import Model\nfrom protocol.pack_plan import PackPlan\n"
        "model = Model.open(sys.argv[1])\n"
        "for number, _ in enumerate(write_pack(model, PackPlan.of(model), Path(sys.argv[2]))):\n"
        "    if number == 20:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    out = tmp_path / "p.gguf"
    arguments = [sys.executable, "-c", script, str(tiny_model), str(out)]
    ended = subprocess.run(arguments, cwd=Path(__file__).parents[2], timeout=40)
    assert ended.returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == ["p.gguf.partial"]
    assert sum(step.again for step in done(tiny_model, out)) >= 5
    assert out.read_bytes() == pack_of(tiny_model, tmp_path / "whole.gguf").read_bytes()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_is_there_is_not_replaced(tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.gguf"
    out.write_bytes(b"mine")
    with pytest.raises(ExpertmeshError, match=r"p\.gguf is there already; remove it, or name another file"):
        done(tiny_model, out)
    assert out.read_bytes() == b"mine"
    assert not partial_path(out).exists()


def test_an_unfinished_file_of_something_else_is_kept(tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.gguf"
    done(tiny_model, out, Share(number=1, count=2), most=3)
    before = partial_path(out).read_bytes()
    with pytest.raises(ExpertmeshError, match=r"p\.gguf\.partial was begun from another model, as another share"):
        done(tiny_model, out)
    assert partial_path(out).read_bytes() == before
    partial_path(out).write_bytes(b"a letter to somebody")
    with pytest.raises(ExpertmeshError, match=r"p\.gguf\.partial is no unfinished pack"):
        done(tiny_model, out)
    assert partial_path(out).read_bytes() == b"a letter to somebody"


def test_two_do_not_write_the_same_pack(tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.gguf"
    with partial_path(out).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ExpertmeshError, match=r"p\.gguf\.partial is being written by another process"):
            done(tiny_model, out)


def test_a_pack_that_was_named_meanwhile_is_not_begun_again(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, really = tmp_path / "p.gguf", fcntl.flock
    pack_of(tiny_model, out)
    expected = out.read_bytes()
    out.rename(partial_path(out))

    def after_the_other(file: int, how: int) -> None:
        partial_path(out).rename(out)
        really(file, how)

    monkeypatch.setattr(packing.fcntl, "flock", after_the_other)
    with pytest.raises(ExpertmeshError, match=r"p\.gguf\.partial is being written by another process"):
        done(tiny_model, out)
    assert out.read_bytes() == expected


def test_too_little_room_is_said_before_anything_is_written(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs_result((4096, 4096, 1000, 100, 100, 0, 0, 0, 0, 255))
    monkeypatch.setattr(packing.os, "fstatvfs", lambda file: found)
    with pytest.raises(ExpertmeshError, match=r"p\.gguf would take .* more are needed in its folder, 400 KiB are free"):
        done(tiny_model, tmp_path / "p.gguf")
    assert not (tmp_path / "p.gguf").exists()


def test_a_disk_that_fills_up_is_told_in_words_and_the_work_is_kept(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, really, left = tmp_path / "p.gguf", os.pwrite, iter(range(30))

    def full(file: int, data: memoryview, offset: int) -> int:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(file, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(packing.os, "pwrite", full)
        with pytest.raises(ExpertmeshError, match=r"p\.gguf\.partial cannot be written: No space left on device"):
            done(tiny_model, out)
    assert any(step.again for step in done(tiny_model, out))


def test_a_model_that_changes_meanwhile_ends_it(tmp_path: Path) -> None:
    path, out = tmp_path / "m.gguf", tmp_path / "p.gguf"
    path.write_bytes(moe_bytes())
    with Model.open(path) as model:
        steps = write_pack(model, plan_of(model), out)
        next(steps)
        os.utime(path, ns=(1, 1))
        with pytest.raises(ModelError, match=r"m\.gguf changed while in use: its modification time"):
            next(steps)
    assert not out.exists()


def test_a_folder_that_is_not_there(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ExpertmeshError, match=r"no/p\.gguf\.partial cannot be written: No such file or directory"):
        done(tiny_model, tmp_path / "no" / "p.gguf")
