"""What a person is told whose model cannot be found, read or computed: every message, whole.

What each check of a file finds is tested beside it, in tests/protocol; here each kind comes once, from end to end.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_bytes import MOE_TENSORS, RawTensor, moe_bytes
from refusals import check_refused
from split_models import split_model

from coordinator.demo import demo_model
from protocol.geometry import ARCHITECTURES
from protocol.quant_types import TensorType, runnable_names

pytestmark = pytest.mark.timeout(60)

LONG = "x" * 300
SOUND = moe_bytes()
ONE_EXPERT = "blk.0.ffn_gate.0.weight"


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def loop(folder: Path) -> None:
    (folder / "loop.gguf").symlink_to("loop.gguf")


def two_models(folder: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (folder / name).write_bytes(SOUND)


def content(data: bytes, name: str = "m.gguf") -> Callable[[Path], None]:
    """A file of these bytes."""

    def write(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    return write


def tensors(**changes: RawTensor | None) -> bytes:
    """A model with other tensors; a double underscore stands for the dot of a name."""
    return moe_bytes(tensors={name.replace("__", "."): tensor for name, tensor in changes.items()})


def legacy() -> bytes:
    """One tensor for each expert, as old files have them."""
    merged = {name: None for name in MOE_TENSORS if "_exps" in name}
    single = {
        f"blk.{layer}.ffn_{role}.{expert}.weight": (96, 64) if role == "down" else (64, 96)
        for layer in range(2)
        for role in ("gate", "up", "down")
        for expert in range(4)
    }
    return moe_bytes(
        tensors={
            **merged,
            **{name: RawTensor(name=name, shape=shape, type=TensorType.Q8_0) for name, shape in single.items()},
        }
    )


def nothing(folder: Path) -> None:
    pass


ASK = "generate --dry-run --model {folder}/"

PATHS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "none": (
        nothing,
        f"{ASK}none.gguf x",
        "Invalid value for '--model': {folder}/none.gguf: No such file or directory",
    ),
    "empty": (
        nothing,
        "generate --model '' x",
        "Invalid value for '--model': an empty path: No such file or directory",
    ),
    "long": (nothing, f"{ASK}{LONG} x", f"Invalid value for '--model': {{folder}}/{LONG}: File name too long"),
    "loop": (
        loop,
        f"{ASK}loop.gguf x",
        "Invalid value for '--model': {folder}/loop.gguf: Too many levels of symbolic links",
    ),
    "bytes": (
        nothing,
        f"{ASK}no\udcff.gguf x",
        "Invalid value for '--model': {folder}/no\\udcff.gguf: No such file or directory",
    ),
    "for logits": (
        nothing,
        "logits --ids 1 --out {folder}/x.npy --model {folder}/none.gguf",
        "Invalid value for '--model': {folder}/none.gguf: No such file or directory",
    ),
    "for a worker": (
        nothing,
        "worker --connect ipc://@x --model {folder}/none.gguf",
        "Invalid value for '--model': {folder}/none.gguf: No such file or directory",
    ),
    "folder without a model": (
        nothing,
        "generate --dry-run --model {folder} x",
        "folder '{folder}' has no file that ends in .gguf; expected the files of one model, or name a file",
    ),
    "folder of two models": (
        two_models,
        "generate --dry-run --model {folder} x",
        "folder '{folder}' has 'a.gguf', 'b.gguf'; expected the files of one model, or name a file",
    ),
    "pipe": (pipe, f"{ASK}pipe x", "'{folder}/pipe' is not a regular file, expected a model file"),
    "device": (
        nothing,
        "generate --dry-run --model /dev/zero x",
        "'/dev/zero' is not a regular file, expected a model file",
    ),
    "empty file": (content(b""), f"{ASK}m.gguf x", "model file '{folder}/m.gguf' is empty"),
    "spaces and other letters": (
        content(b"<html>", "Größe 模型/m 1.gguf"),
        "generate --dry-run --model '{folder}/Größe 模型/m 1.gguf' x",
        "{folder}/Größe 模型/m 1.gguf: not a GGUF file: it starts with b'<htm', expected b'GGUF'",
    ),
    "called by bytes": (
        content(b"<html>", "b\udcff.gguf"),
        f"{ASK}b\udcff.gguf x",
        "{folder}/b\\udcff.gguf: not a GGUF file: it starts with b'<htm', expected b'GGUF'",
    ),
}

CONTENTS: dict[str, tuple[bytes, str]] = {
    "of another kind": (b"PK\3\4 and so on", "not a GGUF file: it starts with b'PK\\x03\\x04', expected b'GGUF'"),
    "of another version": (b"GGUF" + struct.pack("<I", 9) + SOUND[8:], "GGUF version 9 found, expected 2 or 3"),
    "big-endian": (
        b"GGUF" + struct.pack(">I", 3) + SOUND[8:],
        "a big-endian GGUF file; only little-endian ones can be read",
    ),
    "cut in its header": (
        SOUND[:300],
        "part of the 27 tensors stated lies outside of the file of 300 bytes: was it truncated?",
    ),
    "cut in its weights": (
        SOUND[:-1000],
        f"tensor 'blk.1.ffn_down_exps.weight': 26112 bytes (Q8_0, shape (96, 64, 4)) at {len(SOUND) - 26112} end "
        f"outside of the file of {len(SOUND) - 1000} bytes: was it truncated?",
    ),
    "no architecture": (moe_bytes({"general.architecture": None}), "key 'general.architecture' is missing"),
    "unknown architecture": (
        moe_bytes({"general.architecture": "mamba"}),
        f"architecture 'mamba' is not supported; supported: {', '.join(ARCHITECTURES)}",
    ),
    "width of a word": (
        moe_bytes({"qwen3moe.embedding_length": "wide"}),
        "key 'qwen3moe.embedding_length' is the string 'wide', expected an integer",
    ),
    "another width than its tensors": (
        moe_bytes({"qwen3moe.expert_feed_forward_length": 128}),
        "tensor 'blk.0.ffn_gate_exps.weight' has shape (64, 96, 4), expected (64, 128, 4) (columns first)",
    ),
    "more experts used than there are": (moe_bytes({"qwen3moe.expert_used_count": 5}), "5 experts used of 4"),
    "a tensor missing": (
        tensors(blk__1__attn_k__weight=None),
        "tensor 'blk.1.attn_k.weight' is missing",
    ),
    "biases of experts": (
        tensors(
            a=RawTensor(name="blk.0.ffn_gate_exps.bias", shape=(96, 4)),
            b=RawTensor(name="blk.1.ffn_gate_exps.bias", shape=(96, 4)),
        ),
        "tensor 'blk.0.ffn_gate_exps.bias' is not supported yet for qwen3moe; such tensors found: 2, expected none",
    ),
    "one tensor for each expert": (
        legacy(),
        f"tensor {ONE_EXPERT!r} has one expert alone, as old files do; expected 'blk.0.ffn_gate_exps.weight' with all "
        "of them: convert the original model again",
    ),
    "experts of an unsupported type": (
        tensors(blk__0__ffn_up_exps__weight=RawTensor(name="blk.0.ffn_up_exps.weight", shape=(64, 96, 4), type=24)),
        f"tensor 'blk.0.ffn_up_exps.weight' has type I8, which is not supported yet; supported: {runnable_names()}",
    ),
    "a type of tomorrow": (
        tensors(blk__0__ffn_up_exps__weight=RawTensor(name="u", shape=(64, 96, 4), type=99, bytes=96 * 64 * 4)),
        "tensor 'u': type 99 is not known",
    ),
    "no tokenizer": (SOUND, "key 'tokenizer.ggml.model' is missing"),
    "another tokenizer": (
        moe_bytes({"tokenizer.ggml.model": "llama"}),
        "tokenizer model 'llama' (key 'tokenizer.ggml.model') is not supported, expected 'gpt2' (byte-level BPE)",
    ),
}

SHARDS: dict[str, tuple[Callable[[list[Path]], object], str, str]] = {
    "missing": (
        lambda paths: paths[1].unlink(),
        "s-00001-of-00003.gguf",
        "{folder}/s-00001-of-00003.gguf: 1 of the model's 3 files missing in its folder: s-00002-of-00003.gguf",
    ),
    "in another's place": (
        lambda paths: shutil.copy(paths[0], paths[2]),
        "s-00001-of-00003.gguf",
        "{folder}/s-00003-of-00003.gguf: 'split.no' is 0, expected 2: is it a file of this model?",
    ),
    "of another model": (
        lambda paths: paths[1].write_bytes(SOUND),
        "s-00001-of-00003.gguf",
        "{folder}/s-00002-of-00003.gguf: 'split.count' is missing, expected 3: is it a file of this model?",
    ),
    "cut": (
        lambda paths: os.truncate(paths[2], 0),
        "s-00002-of-00003.gguf",
        "model file '{folder}/s-00003-of-00003.gguf' is empty",
    ),
    "called otherwise": (
        lambda paths: paths[1].rename(paths[1].parent / "part2.gguf"),
        "part2.gguf",
        "{folder}/part2.gguf: one of 3 files of a split model, but the others cannot be found from its name: "
        "expected NAME-0000X-of-00003.gguf",
    ),
}


@pytest.mark.parametrize(("make", "command", "error"), PATHS.values(), ids=PATHS)
def test_paths(
    make: Callable[[Path], None], command: str, error: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path)
    check_refused(command, error, tmp_path, capfd)


@pytest.mark.parametrize(("content", "error"), CONTENTS.values(), ids=CONTENTS)
def test_contents(content: bytes, error: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    check_refused(f"{ASK}m.gguf x", f"{{folder}}/m.gguf: {error}", tmp_path, capfd)


@pytest.mark.parametrize(("change", "name", "error"), SHARDS.values(), ids=SHARDS)
def test_files_of_a_split_model(
    change: Callable[[list[Path]], object],
    name: str,
    error: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "s.gguf").write_bytes(SOUND)
    change(split_model(tmp_path / "s.gguf", tmp_path / "of 3", 3))
    folder = tmp_path / "of 3"
    check_refused(f"generate --dry-run --model '{{folder}}/{name}' x", error, folder, capfd)


def test_a_file_that_may_not_be_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(SOUND)
    really = os.open

    def forbidden(name: str | os.PathLike[str], *arguments: int, **more: int | None) -> int:
        if os.fspath(name) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really(name, *arguments, **more)

    monkeypatch.setattr(os, "open", forbidden)  # tests may run as root, which may read everything
    error = "model file '{folder}/m.gguf' cannot be opened: Permission denied"
    check_refused(f"{ASK}m.gguf x", error, tmp_path, capfd)


@pytest.mark.parametrize(("section", "whose"), [("workers", "workers odd"), ("peers", "peer odd")])
def test_workers_and_peers_of_another_model(
    tmp_path: Path, section: str, whose: str, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(demo_model(), tmp_path / "renamed.gguf")  # the name is part of what two processes compare
    text = f'[model]\npath = "{demo_model()}"\n[[{section}]]\nname = "odd"\nmodel_path = "renamed.gguf"\n'
    (tmp_path / "c.toml").write_text(text)
    error = f"{{folder}}/renamed.gguf, the model of {whose}, is not that of {{demo}}"
    check_refused("up --dry-run {folder}/c.toml", error, tmp_path, capfd)
    check_refused("generate --dry-run --config {folder}/c.toml x", error, tmp_path, capfd)
