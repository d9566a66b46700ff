"""The keys of packs, the types in them, and what may be missing of a share: read, and refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_bytes import MOE_TENSORS, Raw, RawTensor, moe_bytes

from protocol.errors import ModelError
from protocol.gguf import GgufFile
from protocol.gguf_header import HeaderTensor, parse_header
from protocol.gguf_writer import entry, header
from protocol.layout import layer_of_experts
from protocol.model import Model
from protocol.pack import (
    DIGEST_BYTES,
    DIGESTS_KEY,
    EXPERTS_KEY,
    FINGERPRINT_KEY,
    SHARE_KEY,
    SHARES_KEY,
    SOURCE_KEY,
    VERSION_KEY,
)
from protocol.quant_types import TensorType

ARRAY, BYTE, BOOL = 9, 0, 7
MARK = "0123456789abcdef"


def array(kind: int, content: bytes) -> Raw:
    """A metadata value of bytes or bools."""
    return Raw(ARRAY, kind.to_bytes(4, "little") + len(content).to_bytes(8, "little") + content)


DIGESTS = array(BYTE, bytes(DIGEST_BYTES * (1 + len(MOE_TENSORS))))
KEYS: dict[str, Any] = {VERSION_KEY: 1, FINGERPRINT_KEY: MARK, SOURCE_KEY: "m.gguf", DIGESTS_KEY: DIGESTS}
SHARE: dict[str, Any] = {SHARE_KEY: 2, SHARES_KEY: 3, EXPERTS_KEY: array(BOOL, bytes([1, 0, 0, 1, 0, 1, 0, 0]))}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A small model with these keys, all its matrices packed."""

    def make(keys: dict[str, Any], packed: bool = True) -> Path:
        path = tmp_path / "p.gguf"
        tensors = {
            name: RawTensor(name=name, shape=tensor.shape, type=tensor.type + 1000, bytes=tensor.room)
            for name, tensor in MOE_TENSORS.items()
            if packed and len(tensor.shape) > 1
        }
        path.write_bytes(moe_bytes(KEYS | keys, tensors))
        return path

    return make


def test_a_pack_is_read_like_a_model_and_has_its_fingerprint(write: Write) -> None:
    with Model.open(write({})) as model:
        assert (model.fingerprint, model.there) == (MARK, None)
        assert {(tensor.type, tensor.packed) for tensor in model.files.tensors.values()} == {
            (TensorType.Q8_0, True),
            (TensorType.F32, False),
        }
        assert all(role.packed for role in model.layout.role_tensors())
        model.files.check_whole("")


def test_a_share_says_which_experts_it_has(write: Write) -> None:
    with Model.open(write(SHARE)) as model:
        assert model.there is not None
        assert model.there.tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
        with pytest.raises(ModelError, match=r"p\.gguf: share 2 of 3 of the experts of 'm\.gguf', for a worker; no$"):
            model.files.check_whole("no")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({VERSION_KEY: 2}, "a pack of version 2, and this program reads version 1: make it again"),
    "version of another kind": ({VERSION_KEY: "1"}, f"key '{VERSION_KEY}' is the string '1', expected an integer"),
    "no fingerprint": ({FINGERPRINT_KEY: None}, f"key '{FINGERPRINT_KEY}' is missing"),
    "a bad fingerprint": ({FINGERPRINT_KEY: "ABC"}, f"'{FINGERPRINT_KEY}' is 'ABC', expected 16 hex digits"),
    "no source": ({SOURCE_KEY: None}, f"key '{SOURCE_KEY}' is missing"),
    "no digests": ({DIGESTS_KEY: None}, f"key '{DIGESTS_KEY}' is missing, or no array of uint8"),
    "digests of another kind": ({DIGESTS_KEY: "x"}, f"key '{DIGESTS_KEY}' is missing, or no array of uint8"),
    "too few digests": ({DIGESTS_KEY: array(BYTE, bytes(16))}, f"'{DIGESTS_KEY}' has 16 bytes, expected 896: 32 for"),
    "no number": (SHARE | {SHARE_KEY: None}, f"key '{SHARE_KEY}' is missing"),
    "a share of none": (SHARE | {SHARE_KEY: 0}, f"'{SHARE_KEY}' is 0 of 3, expected 1 to 64"),
    "a share too many": (SHARE | {SHARE_KEY: 4}, f"'{SHARE_KEY}' is 4 of 3, expected 1 to 64"),
    "experts of another kind": (SHARE | {EXPERTS_KEY: [1, 0]}, f"key '{EXPERTS_KEY}' is missing, or no array of bool"),
    "experts of another model": (
        SHARE | {EXPERTS_KEY: array(BOOL, bytes(9))},
        f"'{EXPERTS_KEY}' speaks of 9 experts, expected 8",
    ),
}


@pytest.mark.parametrize(("keys", "error"), BAD.values(), ids=BAD)
def test_keys_that_cannot_be_are_named(write: Write, keys: dict[str, Any], error: str) -> None:
    path = write(keys)
    with pytest.raises(ModelError) as caught:
        Model.open(path)
    assert str(caught.value).startswith(f"{path}: {error}")


@pytest.mark.parametrize("kind", [1000, 1001, 1030, 1015, 2008, 999])
def test_what_is_no_packed_type_is_not_known(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "p.gguf"
    name = "blk.0.attn_q.weight"
    path.write_bytes(moe_bytes(KEYS, {name: RawTensor(name=name, shape=(64, 128), type=kind, bytes=1 << 15)}))
    with pytest.raises(ModelError, match=rf"tensor '{name}': type {kind} is not known"):
        GgufFile.open(path)


def test_a_packed_vector_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "p.gguf"
    name = "output_norm.weight"
    path.write_bytes(moe_bytes(KEYS, {name: RawTensor(name=name, shape=(64,), type=1008, bytes=256)}))
    with pytest.raises(ModelError, match="type 1008 is not known"):
        GgufFile.open(path)


# --- what the writer makes --------------------------------------------------------------------------------------------


def test_a_header_that_is_written_is_the_one_that_is_read() -> None:
    entries = [
        entry("general.alignment", 64),
        entry("name", "Größe"),
        entry("bytes", np.arange(5, dtype=np.uint8)),
        entry("bools", np.array([True, False])),
    ]
    tensors = [
        HeaderTensor(name="a", shape=(32,), type=0, offset=0),
        HeaderTensor(name="b.ü", shape=(32, 5, 2), type=1008, offset=128),
    ]
    made = header(entries, tensors, 64)
    assert len(made) % 64 == 0
    found = parse_header("x", np.frombuffer(made, np.uint8))
    assert (found.version, found.tensors) == (3, tensors)
    assert found.metadata["general.alignment"] == 64
    assert found.metadata["name"] == "Größe"
    assert found.metadata["bytes"].tolist() == [0, 1, 2, 3, 4]
    assert found.metadata["bools"].tolist() == [True, False]
    assert [made[start:end] for start, end in found.entries.values()] == entries


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("blk.0.ffn_up_exps.weight", 0),
        ("blk.47.ffn_down_exps.weight", 47),
        ("blk.1.ffn_up.weight", None),
        ("blk.1.ffn_up_exps.weight2", None),
        ("blk.x.ffn_up_exps.weight", None),
    ],
)
def test_names_tell_the_layer_of_experts(name: str, layer: int | None) -> None:
    assert layer_of_experts(name) == layer
