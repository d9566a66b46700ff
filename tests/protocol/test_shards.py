"""Models in several files: found from any of them, checked against each other, the same tensors as in one."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from gguf_bytes import ARRAY, U8, Raw, RawTensor, moe_bytes
from split_models import split_model

from protocol.errors import ModelError
from protocol.gguf import GgufFile
from protocol.layout import check_dense
from protocol.model import Model
from protocol.pack import DIGEST_BYTES, DIGESTS_KEY, FINGERPRINT_KEY, SOURCE_KEY, VERSION_KEY
from protocol.shards import MAX_SHARDS, ModelFiles

FILES = 3
Keys = Mapping[int, Mapping[str, Any]]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    path.write_bytes(moe_bytes())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "split"


@pytest.fixture
def shards(whole: Path, folder: Path) -> list[Path]:
    """The small model in three files."""
    return split_model(whole, folder, FILES)


def refusal(path: Path) -> str:
    """Why the model at `path` is refused, without folders."""
    with pytest.raises(ModelError) as caught:
        Model.open(path).close()
    return str(caught.value).replace(f"{path if path.is_dir() else path.parent}/", "")


@pytest.mark.parametrize("given", [0, 1, 2, "folder"])
def test_any_file_or_the_folder_opens_the_whole_model(
    whole: Path, shards: list[Path], folder: Path, given: int | str
) -> None:
    with Model.open(whole) as one, Model.open(folder if given == "folder" else shards[int(given)]) as split:
        assert [file.path for file in split.files.files] == shards
        assert split.geometry == one.geometry
        check_dense(split.files, split.geometry)
        assert dict(one.files.metadata).keys() == {key for key in split.files.metadata if not key.startswith("split.")}
        assert one.files.tensors.keys() == split.files.tensors.keys()
        for name, tensor in one.files.tensors.items():
            other = split.files.tensor(name)
            assert (other.type, other.shape) == (tensor.type, tensor.shape)
            assert other.data.tobytes() == tensor.data.tobytes()


def test_every_number_of_files_is_the_same_model(whole: Path, folder: Path) -> None:
    with Model.open(whole) as one:
        for files in range(2, 9):
            with Model.open(split_model(whole, folder / str(files), files)[0]) as split:
                assert one.files.tensors.keys() == split.files.tensors.keys()


def test_one_layer_may_lie_in_several_files(whole: Path, folder: Path) -> None:
    with Model.open(split_model(whole, folder, 4)[0]) as split, Model.open(whole) as one:
        straddling = [layer for layer in split.layout.layers if len({role.file for role in layer.roles}) > 1]
        assert straddling
        for found, expected in zip(split.layout.role_tensors(), one.layout.role_tensors(), strict=True):
            assert split.files.tensor(found.tensor).data.tobytes() == one.files.tensor(expected.tensor).data.tobytes()
            assert found.file == split.files.tensor(found.tensor).file.path.name


def test_a_first_file_without_tensors(whole: Path, folder: Path) -> None:
    paths = split_model(whole, folder, FILES, empty_first=True)
    with Model.open(paths[2]) as split:
        assert not split.files.files[0].tensors
        check_dense(split.files, split.geometry)


@pytest.mark.parametrize("files", [1, FILES])
def test_tied_embeddings_are_decided_over_all_files(tmp_path: Path, files: int) -> None:
    for name, tensors, tied in (("tied", {"output.weight": None}, True), ("own", {}, False)):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(moe_bytes(tensors=tensors))
        for shard in split_model(path, tmp_path / name, files):
            with Model.open(shard) as model:
                assert model.geometry.tied_head == tied


def test_one_of_one_is_a_whole_model(whole: Path, folder: Path) -> None:
    [path] = split_model(whole, folder, 1)
    with Model.open(path) as model:
        assert len(model.files.files) == 1


def test_the_fingerprint_covers_every_file(shards: list[Path]) -> None:
    with Model.open(shards[0]) as model:
        before = model.fingerprint
    with shards[1].open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xaa")
    with Model.open(shards[2]) as model:
        assert model.fingerprint != before


@pytest.mark.parametrize(
    ("gone", "found"),
    [({1}, "small-00002-of-00003.gguf"), ({0, 2}, "small-00001-of-00003.gguf, small-00003-of-00003.gguf")],
)
def test_missing_files_are_named(shards: list[Path], gone: set[int], found: str) -> None:
    for number in gone:
        shards[number].unlink()
    left = next(shards[number] for number in range(FILES) if number not in gone)
    expected = f"{left.name}: {len(gone)} of the model's 3 files missing in its folder: {found}"
    assert refusal(left) == refusal(left.parent) == expected


WRONG_KEYS: dict[str, tuple[Keys, str]] = {
    "foreign count": (
        {2: {"split.count": 4}},
        "small-00002-of-00003.gguf: 'split.count' is 4, expected 3: is it a file of this model?",
    ),
    "misnumbered": (
        {3: {"split.no": 0}},
        "small-00003-of-00003.gguf: 'split.no' is 0, expected 2: is it a file of this model?",
    ),
    "foreign tensor count": (
        {3: {"split.tensors.count": 99}},
        "small-00003-of-00003.gguf: 'split.tensors.count' is 99, expected 27: is it a file of this model?",
    ),
    "all state another tensor count": (
        {number: {"split.tensors.count": 99} for number in (1, 2, 3)},
        "small-00001-of-00003.gguf: 27 tensors in all 3 files, but 'split.tensors.count' is 99",
    ),
    "no number": (
        {2: {"split.no": None}},
        "small-00002-of-00003.gguf: 'split.no' is missing, expected 1: is it a file of this model?",
    ),
    "no tensor count": (
        {1: {"split.tensors.count": None}},
        "small-00001-of-00003.gguf: key 'split.tensors.count' is missing",
    ),
    "no count": (
        {1: {"split.count": None}},
        "small-00001-of-00003.gguf: its name says 3 files, but it has no 'split.count'",
    ),
    "another count than the name's": (
        {1: {"split.count": 2}},
        "small-00001-of-00003.gguf: its name says 3 files, but 'split.count' is 2",
    ),
    "far too many": (
        {1: {"split.count": 60000}},
        f"small-00001-of-00003.gguf: 'split.count' is 60000, expected at most {MAX_SHARDS}",
    ),
    "not a number": (
        {1: {"split.count": "three"}},
        "small-00001-of-00003.gguf: key 'split.count' is the string 'three', expected an integer",
    ),
    "metadata of another model": (
        {2: {"qwen3moe.block_count": 9}},
        "small-00002-of-00003.gguf: 'qwen3moe.block_count' is int 9, but int 2 in 'small-00001-of-00003.gguf': "
        "is it a file of this model?",
    ),
}


@pytest.mark.parametrize(("keys", "message"), WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_keys_that_contradict_each_other(whole: Path, folder: Path, keys: Keys, message: str) -> None:
    assert refusal(split_model(whole, folder, FILES, keys=keys)[0]) == message


@pytest.mark.parametrize("number", [1, 2])
def test_a_pack_is_never_one_of_several_files(whole: Path, folder: Path, number: int) -> None:
    with GgufFile.open(split_model(whole, folder, FILES)[number - 1]) as shard:
        digests = bytes(DIGEST_BYTES * (1 + len(shard.tensors)))
    keys = {
        VERSION_KEY: 1,
        FINGERPRINT_KEY: "0123456789abcdef",
        SOURCE_KEY: "small.gguf",
        DIGESTS_KEY: Raw(ARRAY, struct.pack("<IQ", U8, len(digests)) + digests),
    }
    expected = f"small-0000{number}-of-00003.gguf: a pack among the files of a split model; a pack is one file"
    assert refusal(split_model(whole, folder, FILES, keys={number: keys})[0]) == expected


def test_the_same_metadata_in_every_file_is_fine(whole: Path, folder: Path) -> None:
    same = {number: {"general.type": "model", "more": [1]} for number in (2, 3)}
    Model.open(split_model(whole, folder, FILES, keys=same)[0]).close()


def test_a_file_in_the_place_of_another(shards: list[Path]) -> None:
    shutil.copy(shards[0], shards[1])
    assert refusal(shards[0]) == ("small-00002-of-00003.gguf: 'split.no' is 0, expected 1: is it a file of this model?")


def test_a_tensor_that_is_in_two_files(tmp_path: Path, shards: list[Path]) -> None:
    """Its other keys are right: somebody made it with care."""
    other = tmp_path / "small.gguf"
    twice = RawTensor(name="blk.0.attn_norm.weight", shape=(64,))
    other.write_bytes(moe_bytes(tensors={"blk.0.attn_norm.weight": None, "a": twice}))
    shutil.copy(split_model(other, tmp_path / "other", FILES)[2], shards[2])
    assert re.fullmatch(
        r"small-00003-of-00003\.gguf: tensor 'blk\.0\.attn_norm\.weight' is in 'small-0000\d-of-00003\.gguf' too",
        refusal(shards[0]),
    )


def test_a_truncated_file(shards: list[Path]) -> None:
    os.truncate(shards[1], shards[1].stat().st_size - 1)
    found = refusal(shards[0])
    assert found.startswith("small-00002-of-00003.gguf: tensor 'blk.")
    assert found.endswith("was it truncated?")


@pytest.mark.parametrize("number", [0, 4, 7])
def test_a_number_that_no_file_can_have(shards: list[Path], folder: Path, number: int) -> None:
    odd = folder / f"small-{number:05d}-of-00003.gguf"
    shutil.copy(shards[1], odd)
    assert refusal(odd) == f"{odd.name}: its name says file {number} of 3, expected 1 to 3"


def test_links_count_by_their_own_names(shards: list[Path], tmp_path: Path) -> None:
    """As in the caches of download tools, whose files have digests for names."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for number, path in enumerate(shards):
        (tmp_path / "snapshot" / path.name).symlink_to(path.rename(tmp_path / "blobs" / str(number)))
    with Model.open(tmp_path / "snapshot") as model:
        assert [file.path.name for file in model.files.files] == [path.name for path in shards]


def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be opened: File name too long"):
        Model.open(tmp_path / ("x" * 300))


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the user of a test may be allowed to: the answer of the system is given by hand."""

    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    assert refusal(tmp_path) == f"folder '{tmp_path}' cannot be read: Permission denied"


def test_a_file_that_is_none(shards: list[Path]) -> None:
    shards[2].write_bytes(b"<html>")
    assert refusal(shards[0]) == "small-00003-of-00003.gguf: not a GGUF file: it starts with b'<htm', expected b'GGUF'"


def test_a_shard_whose_name_was_changed(shards: list[Path], tmp_path: Path) -> None:
    assert refusal(shards[0].rename(tmp_path / "model.gguf")) == (
        "model.gguf: one of 3 files of a split model, but the others cannot be found from its name: "
        "expected NAME-0000X-of-00003.gguf"
    )


def test_a_folder_with_no_model_or_several(tmp_path: Path, shards: list[Path], folder: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refusal(empty) == (
        f"folder '{empty}' has no file that ends in .gguf; expected the files of one model, or name a file"
    )
    (folder / "other.gguf").write_bytes(moe_bytes())
    assert refusal(folder) == (
        f"folder '{folder}' has 'other.gguf', 'small-*-of-00003.gguf'; expected the files of one model, or name a file"
    )


def test_errors_name_the_file_that_has_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(moe_bytes(tensors={"b": RawTensor(name="blk.1.ffn_down_exps.bias", shape=(64, 4))}))
    paths = split_model(path, tmp_path / "split", FILES)
    with ModelFiles.open(paths[0]) as files, Model.open(paths[0]) as model:
        holder = files.tensor("blk.1.ffn_down_exps.bias").file.path
        assert holder == paths[2]
        with pytest.raises(ModelError) as caught:
            check_dense(files, model.geometry)
    assert str(caught.value) == (
        f"{holder}: tensor 'blk.1.ffn_down_exps.bias' is not supported yet for qwen3moe; "
        "such tensors found: 1, expected none"
    )


def test_a_missing_tensor_is_missed_in_all_files(tmp_path: Path) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(moe_bytes(tensors={"blk.1.ffn_up_exps.weight": None}))
    assert refusal(split_model(path, tmp_path / "split", FILES)[0]) == (
        "wrong-00001-of-00003.gguf: tensor 'blk.1.ffn_up_exps.weight' is missing in all 3 files"
    )


@pytest.mark.parametrize("name", ["ein Modell", "模型-ж", "x" * 200, "a'b\"c\n"])
def test_names_of_all_kinds(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(moe_bytes())
    for shard in split_model(path, tmp_path / name, 2):
        with Model.open(shard) as model:
            assert len(model.files.files) == 2
    with Model.open(path) as model:
        assert model.files.path == path


# --- holes --------------------------------------------------------------------------------------------------------


PAGE = 4096


def punch(path: Path, *starts: int) -> None:
    """Write the file anew without the pages at these offsets, which read as zeros from then on."""
    content = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        for start in range(0, len(content), PAGE):
            if start not in starts:
                file.seek(start)
                file.write(content[start : start + PAGE])


def holes_show(folder: Path) -> bool:
    """Whether this file system tells where nothing was written."""
    path = folder / "sparse"
    path.write_bytes(b"")
    os.truncate(path, 1 << 20)
    with path.open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 0


@pytest.fixture
def big(mini_model: Callable[[str], Path], tmp_path: Path) -> Path:
    """A model whose tensors have many pages."""
    if not holes_show(tmp_path):
        pytest.skip("this file system does not tell where nothing was written")
    return Path(shutil.copy(mini_model("f32"), tmp_path / "big.gguf"))


@pytest.mark.parametrize("files", [1, FILES])
def test_a_hole_in_an_expert_tensor_is_named(big: Path, tmp_path: Path, files: int) -> None:
    name = "blk.1.ffn_up_exps.weight"
    paths = split_model(big, tmp_path / "split", files)
    with ModelFiles.open(paths[0]) as whole:
        tensor = whole.tensor(name)
    start = -(-tensor.offset // 4096) * 4096 + 4096
    punch(tensor.file.path, start, start + PAGE)
    assert refusal(paths[0]) == (
        f"{tensor.file.path.name}: 8192 bytes of tensor '{name}' were never written (holes in the file, the first at "
        f"{start}): was its download or copy interrupted?"
    )


def test_rows_of_unused_tokens_may_be_a_hole_but_not_the_whole_embedding(big: Path) -> None:
    with ModelFiles.open(big) as whole:
        tensor = whole.tensor("token_embd.weight")
    first, last = -(-tensor.offset // 4096) * 4096, (tensor.offset + tensor.bytes) // 4096 * 4096
    pages = range(first, last, 4096)
    punch(big, *pages[1::2][: len(pages) // 2 - 1])
    Model.open(big).close()
    punch(big, *pages[1:-1:2], *pages[2:-1:2])
    assert f"of tensor '{tensor.name}' were never written" in refusal(big)
