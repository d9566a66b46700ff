"""Headers that lie, and files that are cut short: each is refused with a sentence that says what is wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from gguf_bytes import ARRAY, BOOL, F64, STRING, U8, U32, U64, Raw, RawTensor, gguf_bytes, string

from protocol import gguf_header
from protocol.errors import ModelError
from protocol.gguf import GgufFile
from protocol.quant_types import TensorType

BIG = 2**64 - 1


def one_key(found: Raw) -> bytes:
    return gguf_bytes({"a": found})


def array(kind: int, count: int, content: bytes = b"") -> Raw:
    return Raw(ARRAY, struct.pack("<IQ", kind, count) + content)


def one_tensor(
    shape: tuple[int, ...] = (32,), type: int = TensorType.F32, offset: int = 0, bytes: int | None = None
) -> bytes:
    return gguf_bytes({}, [RawTensor(name="t", shape=shape, type=type, offset=offset, bytes=bytes)])


HOSTILE: dict[str, tuple[bytes, str]] = {
    "not gguf": (b"PK\x03\x04 and so on and on", r"not a GGUF file: it starts with b'PK\\x03\\x04', expected b'GGUF'"),
    "one byte": (b"G", "not a GGUF file"),
    "magic alone": (b"GGUF", "the header lies outside of the file of 4 bytes: was it truncated"),
    "half a prologue": (gguf_bytes({})[:23], "the header lies outside"),
    "version 1": (gguf_bytes({}, version=1), "GGUF version 1 found, expected 2 or 3"),
    "version 4": (gguf_bytes({}, version=4), "GGUF version 4 found"),
    "version 0": (gguf_bytes({}, version=0), "GGUF version 0 found"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "many keys": (gguf_bytes({}, keys=BIG), f"{BIG} metadata keys stated, at most 65536"),
    "more keys than bytes": (gguf_bytes({}, keys=1000), "part of the 1000 metadata keys stated lies outside"),
    "one key too many": (gguf_bytes({"a": "x" * 50}, keys=2), "the length of key 1 lies outside"),
    "many tensors": (gguf_bytes({}, tensor_count=BIG), f"{BIG} tensors stated, at most 65536"),
    "more tensors than bytes": (gguf_bytes({}, tensor_count=9), "part of the 9 tensors stated lies outside"),
    "key longer than the file": (gguf_bytes({"a" * 60: 1})[:50], "key 0 lies outside"),
    "long key": (gguf_bytes({b"k" * 65536: 1}), "key 0 is 65536 bytes long, at most 65535"),
    "key of all bits": (gguf_bytes({}, keys=1) + b"\xff" * 20, f"key 0 is {BIG} bytes long"),
    "key not utf-8": (gguf_bytes({b"\xc3\x28": 1}), r"key 0 is not UTF-8: b'\\xc3\('"),
    "key twice": (gguf_bytes([("a", 1), ("b", 2), ("a", 3)]), "key 'a' appears twice"),
    "value type": (one_key(Raw(13, b"1234")), "'a' has value type 13"),
    "value cut off": (one_key(Raw(U64, b"1234")), "the value of 'a' lies outside"),
    "bool of 2": (one_key(Raw(BOOL, b"\x02")), "the value of 'a' is 2, expected a bool"),
    "long string": (one_key(Raw(STRING, b"\xff" * 8)), f"the value of 'a' is {BIG} bytes long"),
    "string cut off": (one_key(Raw(STRING, b"\x09" + bytes(7) + b"x")), "the value of 'a' lies"),
    "string not utf-8": (one_key(Raw(STRING, string(b"\xff"))), "the value of 'a' is not UTF-8"),
    "array type": (one_key(array(13, 1, b"1234")), "'a' has element type 13"),
    "array of arrays": (one_key(array(ARRAY, 1)), "'a' is an array of arrays"),
    "long array": (one_key(array(U8, BIG)), f"part of the {BIG} values of 'a' lies outside"),
    "array of many bytes": (one_key(array(F64, 2**61)), "values of 'a' lies outside"),
    "array cut off": (one_key(array(U32, 3, b"12345678901")), "part of the 3 values of 'a'"),
    "bools of 2": (one_key(array(BOOL, 2, b"\x01\x02")), "an element of 'a' is 2"),
    "many strings": (one_key(array(STRING, BIG)), f"part of the {BIG} strings of 'a'"),
    "strings cut off": (one_key(array(STRING, 2, string("abcdefgh"))), "the 2 strings of 'a'"),
    "string in array too long": (one_key(array(STRING, 2, b"\xff" * 16)), "the 2 strings of 'a'"),
    "last string too long": (one_key(array(STRING, 1, b"\x01" + bytes(7))), "the 1 strings of 'a'"),
    "alignment 0": (gguf_bytes({"general.alignment": 0}), "'general.alignment' is 0, expected a power of two"),
    "alignment 48": (gguf_bytes({"general.alignment": 48}), "'general.alignment' is 48, expected a power of two"),
    "alignment text": (gguf_bytes({"general.alignment": "8"}), "'general.alignment' is the string '8', expected"),
    "tensor twice": (gguf_bytes({}, [RawTensor(name="t"), RawTensor(name="t")]), "tensor 't' appears twice"),
    "tensor name": (gguf_bytes({}, [RawTensor(name=b"\xff")]), "the name of tensor 0 is not UTF-8"),
    "no dimensions": (one_tensor(shape=(), bytes=0), "'t' has 0 dimensions, expected 1 to 4"),
    "five dimensions": (one_tensor(shape=(1,) * 5), "'t' has 5 dimensions"),
    "dimension of 0": (one_tensor(shape=(32, 0)), r"'t': shape \(32, 0\) has a dimension of 0"),
    "dimensions overflow": (one_tensor(shape=(2**32, 2**32, 2), bytes=8), "outside of the file"),
    "largest dimension": (one_tensor(shape=(BIG, BIG, BIG, BIG), bytes=8), "outside of the file"),
    "part of a block": (one_tensor(shape=(40,), type=TensorType.Q8_0, bytes=64), "40 columns are"),
    "tensor type": (one_tensor(type=99, bytes=64), "tensor 't': type 99 is not known"),
    "removed tensor type": (one_tensor(type=4, bytes=64), "tensor 't': type 4 is not known"),
    "misaligned": (one_tensor(offset=4), "offset 4 is no multiple of the alignment 32"),
    "offset outside": (one_tensor(offset=2**20), "end outside of the file"),
    "largest offset": (one_tensor(offset=2**64 - 32), "end outside of the file"),
    "truncated data": (one_tensor()[:-1], r"128 bytes \(F32, shape \(32,\)\) at 64 end outside of the file of 191"),
    "no data": (one_tensor()[:64], "end outside of the file"),
    "truncated tensors": (one_tensor()[:56], "tensor 't' lies outside"),
    "overlap": (
        gguf_bytes({}, [RawTensor(name="a", offset=0), RawTensor(name="b", offset=96)]),
        r"tensors 'a' \(128 bytes at 96\) and 'b' \(128 bytes at 192\) overlap",
    ),
    "the same place": (gguf_bytes({}, [RawTensor(name="a", offset=0), RawTensor(name="b", offset=0)]), "overlap"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        GgufFile.open(path)
    assert "model.gguf" in str(caught.value)


def test_names_from_files_are_shown_short_and_escaped(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes([("\x1b[31m" + "k" * 5000, 1)] * 2))
    with pytest.raises(ModelError, match="appears twice") as caught:
        GgufFile.open(path)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_header_longer_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "HEADER_LIMIT", 100)
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes({"a": "x" * 90}))
    with pytest.raises(ModelError, match="outside of the first 100 bytes, more than a header may take"):
        GgufFile.open(path)


def test_a_count_in_a_huge_file_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as file:
        file.write(one_key(array(STRING, 1 << 36)))
        file.truncate(1 << 40)
    with pytest.raises(ModelError, match="more than a header may take"):
        GgufFile.open(path)
