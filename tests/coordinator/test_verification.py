"""`expertmesh model verify` and `pack` as they are typed: each kind of damage is named, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from gguf_bytes import moe_bytes
from moe_models import write_model
from packs import pack_of, shares_of

from coordinator import packing
from coordinator.cli import run
from coordinator.config import MAX_WORKERS
from protocol.errors import ModelError
from protocol.gguf import GgufFile
from protocol.gguf_writer import entry
from protocol.pack import FINGERPRINT_KEY, MAX_SHARES, VERSION_KEY
from protocol.shards import ModelFiles

pytestmark = pytest.mark.timeout(60)

SETTINGS = {"layers": 2, "experts": 4, "experts_used": 2, "embd": 64, "ff_exp": 32, "vocab": 300, "heads": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, m.gguf; another one of its name, other/m.gguf; its pack, and both halves of its experts."""
    folder = tmp_path_factory.mktemp("sound")
    model = write_model(folder / "m.gguf", **SETTINGS)
    (folder / "other").mkdir()
    write_model(folder / "other" / "m.gguf", **SETTINGS, seed=2)
    pack_of(model, folder / "p.gguf")
    for share in shares_of(model, folder / "s", 2):
        share.rename(folder / f"s{share.name[0]}.gguf")
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """A copy of them to damage."""
    copy = tmp_path / "copy"
    for path in files.rglob("*.gguf"):
        target = copy / path.relative_to(files)
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--sparse=always", path, target], check=True)
    return copy


def told(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    code = run([str(word) for word in words])
    return code, *capfd.readouterr()


def test_sound_files_are_sound(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [folder / name for name in ("m.gguf", "p.gguf", "s1.gguf", "s2.gguf")]
    checks = "structure and holes"
    assert told(capfd, "model", "verify", *paths) == (
        0,
        f"{paths[0]}: model, sound: {checks}\n{paths[1]}: pack, sound: {checks}, digests of 27 tensors\n"
        f"{paths[2]}: share 1 of 2, sound: {checks}, digests of 6 tensors\n"
        f"{paths[3]}: share 2 of 2, sound: {checks}, digests of 6 tensors\n",
        "",
    )
    for against in paths[:2]:
        code, output, errors = told(capfd, "model", "verify", *paths, "--against", against)
        assert (code, errors) == (0, "")
        assert output.count("weights of 27 tensors") == 2
        assert output.count("weights of 6 tensors") == 2


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def middle_of(path: Path, tensor: str) -> int:
    """A byte in expert 1 of 4, or in the middle of another tensor."""
    with GgufFile.open(path) as file:
        found = file.tensors[tensor]
        return found.offset + found.bytes * (3 if "_exps" in tensor else 4) // 8


@pytest.mark.parametrize("tensor", ["token_embd.weight", "blk.0.attn_norm.weight", "blk.1.ffn_down_exps.weight"])
def test_one_bit_of_a_tensor(folder: Path, tensor: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "p.gguf"
    flip(path, middle_of(path, tensor))
    with GgufFile.open(path) as file:
        start, end = file.tensors[tensor].offset, file.tensors[tensor].offset + file.tensors[tensor].bytes
    wrong = f"tensor '{tensor}', bytes {start} to {end}, is not what was written: it differs from its digest"
    assert told(capfd, "model", "verify", path) == (1, f"{path}: pack, 1 problem:\n- {wrong}\n", "")
    code, output, _ = told(capfd, "model", "verify", path, folder / "m.gguf", "--against", folder / "m.gguf")
    which = " of expert 1" if "_exps" in tensor else ""
    assert (code, output.splitlines()) == (
        1,
        [
            f"{path}: pack, 2 problems:",
            f"- {wrong}",
            f"- tensor '{tensor}' has other weights{which} than {folder}/m.gguf",
            f"{folder}/m.gguf: model, sound: structure and holes, weights of 27 tensors",
        ],
    )


def test_one_bit_of_a_share(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "s2.gguf"
    flip(path, middle_of(path, "blk.0.ffn_up_exps.weight"))
    code, output, _ = told(capfd, "model", "verify", path)
    assert code == 1
    assert "- tensor 'blk.0.ffn_up_exps.weight', bytes " in output


def test_one_bit_of_the_metadata(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "p.gguf"
    flip(path, path.read_bytes().index(b"synthetic-moe"))
    assert told(capfd, "model", "verify", path) == (
        1,
        f"{path}: pack, 1 problem:\n- the header is not what was written: it differs from its digest\n",
        "",
    )
    _, output, _ = told(capfd, "model", "verify", path, "--against", folder / "m.gguf")
    assert f"- its metadata is not that of {folder}/m.gguf\n" in output


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))


def test_another_version(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "p.gguf"
    replace(path, entry(VERSION_KEY, 1), entry(VERSION_KEY, 2))
    wrong = (
        f"{path}: a pack of version 2, and this program reads version 1: make it again from the model, with "
        "`expertmesh model pack`"
    )
    assert told(capfd, "model", "verify", path) == (1, f"{path}: of no use, 1 problem:\n- {wrong}\n", "")
    assert told(capfd, "model", "inspect", path) == (2, "", f"error: {wrong}\n")


def test_a_fingerprint_that_is_none(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "p.gguf"
    with GgufFile.open(path) as file:
        mark = file.metadata[FINGERPRINT_KEY]
    replace(path, entry(FINGERPRINT_KEY, mark), entry(FINGERPRINT_KEY, "not a fingerprint"[:16]))
    expected = f"{path}: '{FINGERPRINT_KEY}' is 'not a fingerprin', expected 16 hex digits"
    assert told(capfd, "model", "verify", path)[1] == f"{path}: of no use, 1 problem:\n- {expected}\n"


def test_cut_short(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "p.gguf"
    os.truncate(path, path.stat().st_size - 1)
    code, output, errors = told(capfd, "model", "verify", path)
    assert (code, errors) == (1, "")
    assert output.startswith(f"{path}: of no use, 1 problem:\n- {path}: tensor 'output.weight': ")
    assert output.endswith("bytes: was it truncated?\n")


def test_holes_where_something_must_be(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "s1.gguf"
    content = path.read_bytes()
    with GgufFile.open(path) as file:
        start = min(tensor.offset for tensor in file.tensors.values())
    os.truncate(path, start)
    os.truncate(path, len(content))
    code, output, _ = told(capfd, "model", "verify", path)
    assert code == 1
    assert "of tensor 'blk.1.ffn_down_exps.weight' were never written (holes in the file, the first at " in output
    code, output, _ = told(capfd, "model", "inspect", path)
    assert (code, "never written" in output) == (1, True)


def test_a_pack_of_another_model(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, other = folder / "p.gguf", folder / "other" / "m.gguf"
    code, output, _ = told(capfd, "model", "verify", path, "--against", other)
    assert code == 1
    assert "- it was made of a model with fingerprint " in output
    assert f"- tensor 'token_embd.weight' has other weights than {other}\n" in output


def test_a_pack_of_a_model_that_was_renamed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The weights are the same, but the two cannot be used together."""
    shutil.copy(folder / "m.gguf", folder / "renamed.gguf")
    code, output, _ = told(capfd, "model", "verify", folder / "p.gguf", "--against", folder / "renamed.gguf")
    assert (code, output.count("\n- ")) == (1, 1)
    assert "they differ in weights, or in the names of their files" in output


def test_as_json(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "p.gguf"
    code, output, _ = told(capfd, "model", "verify", "--json", path, folder / "none.gguf")
    sound, missing = json.loads(output)["files"]
    assert (code, sound) == (1, {"path": str(path), "kind": "pack", "digests": 27, "compared": 0, "problems": []})
    assert missing["kind"] == ""
    assert missing["problems"] == [f"model file '{folder}/none.gguf' does not exist"]


# --- the other commands -----------------------------------------------------------------------------------------------


def test_packs_are_named_after_the_model(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, output, errors = told(capfd, "model", "pack", folder / "m.gguf")
    assert (code, output) == (0, "")
    assert errors.startswith(f"{folder}/m.packed.gguf: 27 tensors, ")
    assert (folder / "m.packed.gguf").read_bytes() == (folder / "p.gguf").read_bytes()
    code, _, errors = told(capfd, "model", "pack", folder / "m.packed.gguf", "--share", "2/2")
    assert errors.startswith(f"{folder}/m.share-2-of-2.packed.gguf: 6 tensors, ")
    assert "share 2 of 2 with 4 experts" in errors
    assert (folder / "m.share-2-of-2.packed.gguf").read_bytes() == (folder / "s2.gguf").read_bytes()


def test_ctrl_c_leaves_what_is_done_and_says_how_to_go_on(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    really, left = os.pwrite, iter(range(30))

    def interrupted(file: int, data: memoryview, offset: int) -> int:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGINT)
        return really(file, data, offset)

    out = folder / "x.gguf"
    with monkeypatch.context() as patch:
        patch.setattr(packing.os, "pwrite", interrupted)
        code, output, errors = told(capfd, "model", "pack", folder / "m.gguf", out)
    expected = f"stopped; {out}.partial has what is done, and the same command goes on from there\n"
    assert (code, output, errors) == (130, "", expected)
    assert not out.exists()
    code, _, errors = told(capfd, "model", "pack", folder / "m.gguf", out)
    assert (code, " of it by an earlier run" in errors) == (0, True)
    assert out.read_bytes() == (folder / "p.gguf").read_bytes()


def test_a_folder_names_its_model_and_not_the_packs_beside_it(folder: Path) -> None:
    (folder / "one").mkdir()
    model = Path(shutil.move(folder / "m.gguf", folder / "one" / "m.gguf"))
    for share in ([], ["--share", "1/2"]):
        assert run(["model", "pack", str(folder / "one"), *share]) == 0
    with ModelFiles.open(folder / "one") as files:
        assert files.path == model
    model.unlink()
    with pytest.raises(
        ModelError, match=r"has 'm\.packed\.gguf', 'm\.share-1-of-2\.packed\.gguf'; expected the files of"
    ):
        ModelFiles.open(folder / "one")
    (folder / "one" / "m.share-1-of-2.packed.gguf").unlink()
    with ModelFiles.open(folder / "one") as files:
        assert files.pack is not None


def test_there_are_as_many_shares_as_workers() -> None:
    assert MAX_SHARES == MAX_WORKERS


def test_an_inspection_tells_packs_and_shares(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, output, _ = told(capfd, "model", "inspect", folder / "p.gguf")
    assert (code, "\npack       of m.gguf, fingerprint " in output) == (0, True)
    assert " Q8_0, packed " in output
    assert output.endswith("It can be run.\n")
    code, output, _ = told(capfd, "model", "inspect", folder / "s1.gguf")
    assert code == 0
    assert "\nshare      1 of 2, for one worker: 4 experts, " in output
    assert output.endswith("A worker can hold it; no coordinator can run it.\n")
    code, output, _ = told(capfd, "model", "inspect", "--json", folder / "s1.gguf")
    made = json.loads(output)["pack"]
    assert (made["source"], made["share"], made["shares"], made["experts"]) == ("m.gguf", 1, 2, 4)


REFUSED: dict[str, tuple[str, str]] = {
    "share of a coordinator": (
        "generate --dry-run --model {folder}/s1.gguf x",
        "{folder}/s1.gguf: share 1 of 2 of the experts of 'm.gguf', for a worker; the coordinator needs the whole "
        "model, or a whole pack of it",
    ),
    "logits of a share": (
        "logits --model {folder}/s2.gguf --ids 1 --out {folder}/x.npy",
        "{folder}/s2.gguf: share 2 of 2 of the experts of 'm.gguf', for a worker; the coordinator needs the whole "
        "model, or a whole pack of it",
    ),
    "pack that is there": (
        "model pack {folder}/m.gguf {folder}/p.gguf",
        "{folder}/p.gguf is there already; remove it, or name another file",
    ),
    "share of nobody": (
        "model pack {folder}/m.gguf --share 3/2",
        "--share is 3/2, expected N/M, such as 1/2; 64 shares at most",
    ),
    "share that is no number": (
        "model pack {folder}/m.gguf --share half",
        "--share is half, expected N/M, such as 1/2; 64 shares at most",
    ),
    "pack of a share": (
        "model pack {folder}/s1.gguf {folder}/x.gguf",
        "{folder}/s1.gguf: share 1 of 2 of the experts of 'm.gguf', for a worker; packs are made of a whole model, or "
        "of a whole pack of it",
    ),
    "compared with a share": (
        "model verify {folder}/p.gguf --against {folder}/s1.gguf",
        "{folder}/s1.gguf: share 1 of 2 of the experts of 'm.gguf', for a worker; weights are compared with a whole "
        "model, or with a whole pack of it",
    ),
    "nothing to verify": ("model verify", "Missing argument 'FILE...'."),
}


@pytest.mark.parametrize(("command", "error"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(folder: Path, command: str, error: str, capfd: pytest.CaptureFixture[str]) -> None:
    filled = [word.replace("{folder}", str(folder)) for word in command.split()]
    assert told(capfd, *filled) == (2, "", f"error: {error.replace('{folder}', str(folder))}\n")


def test_packed_types_of_a_file_that_is_no_pack(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As of a file whose keys somebody took out: its rows would be read in the wrong order."""
    path = tmp_path / "m.gguf"
    content = moe_bytes()
    at = content.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4 + 2 * 8
    path.write_bytes(content[:at] + (1008).to_bytes(4, "little") + content[at + 4 :])
    code, output, _ = told(capfd, "model", "verify", path)
    assert (code, output.splitlines()[1]) == (1, f"- {path}: tensor 'blk.0.attn_q.weight': type 1008 is not known")
