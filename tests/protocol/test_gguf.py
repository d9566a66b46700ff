"""Opening GGUF files: sound ones of every kind, and each way in which a header can be wrong."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_bytes as raw
import numpy as np
import pytest
from gguf import GGUFReader
from gguf_bytes import Raw, RawTensor

from protocol.errors import ModelError
from protocol.gguf import GgufFile
from protocol.quant_types import TensorType

Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Puts bytes into a file called model.gguf and gives its path."""

    def write(content: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_open(write: Write, version: int) -> None:
    with GgufFile.open(write(raw.gguf_bytes({"a": 1}, [RawTensor(name="t")], version=version))) as gguf:
        assert (gguf.version, gguf.alignment, dict(gguf.metadata)) == (version, 32, {"a": 1})
        assert list(gguf.tensors) == ["t"]


SCALARS: list[tuple[Any, Any]] = [
    (Raw(raw.U8, b"\xff"), 255),
    (Raw(raw.I8, b"\xff"), -1),
    (Raw(raw.U16, b"\xff\xff"), 65535),
    (Raw(raw.I16, b"\xfe\xff"), -2),
    (Raw(raw.U32, b"\xff" * 4), 2**32 - 1),
    (Raw(raw.I32, b"\xff" * 4), -1),
    (Raw(raw.F32, struct.pack("<f", 1.5)), 1.5),
    (Raw(raw.BOOL, b"\x01"), True),
    (Raw(raw.BOOL, b"\x00"), False),
    (Raw(raw.STRING, raw.string("é\0🙂")), "é\0🙂"),
    (Raw(raw.U64, b"\xff" * 8), 2**64 - 1),
    (Raw(raw.I64, b"\xff" * 8), -1),
    (Raw(raw.F64, struct.pack("<d", 0.1)), 0.1),
]


@pytest.mark.parametrize(("stored", "expected"), SCALARS)
def test_scalars(write: Write, stored: Raw, expected: object) -> None:
    with GgufFile.open(write(raw.gguf_bytes({"key": stored}))) as gguf:
        assert gguf.metadata["key"] == expected
        assert type(gguf.metadata["key"]) is type(expected)


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?", "<u8", "<i8", "<f8"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_number_arrays(write: Write, dtype: str, count: int) -> None:
    expected = np.ones(count, dtype)
    kind = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?", "", "", "<u8", "<i8", "<f8"].index(dtype)
    stored = Raw(raw.ARRAY, struct.pack("<IQ", kind, count) + expected.tobytes())
    with GgufFile.open(write(raw.gguf_bytes({"key": stored, "after": 7}))) as gguf:
        found = gguf.metadata["key"]
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
        assert not found.flags.writeable
        assert gguf.metadata["after"] == 7


def test_string_arrays_are_sequences(write: Write) -> None:
    texts = ["", "Ġthe", "🙂", "a\0b"]
    with GgufFile.open(write(raw.gguf_bytes({"texts": texts, "none": [], "after": 1}))) as gguf:
        found = gguf.metadata["texts"]
        assert list(found) == texts
        assert (len(found), found[1], found[-1], found[1:3]) == (4, "Ġthe", "a\0b", ["Ġthe", "🙂"])
        assert "🙂" in found
        with pytest.raises(IndexError):
            found[4]
        assert gguf.metadata["after"] == 1


def test_an_empty_string_array(write: Write) -> None:
    stored = Raw(raw.ARRAY, struct.pack("<IQ", raw.STRING, 0))
    with GgufFile.open(write(raw.gguf_bytes({"none": stored}))) as gguf:
        assert list(gguf.metadata["none"]) == []


def test_a_string_that_is_not_utf8_is_refused_when_read_and_only_it(write: Write) -> None:
    stored = Raw(raw.ARRAY, struct.pack("<IQ", raw.STRING, 2) + raw.string("fine") + raw.string(b"\xff\xfe"))
    with GgufFile.open(write(raw.gguf_bytes({"key": stored}))) as gguf:
        assert gguf.metadata["key"][0] == "fine"
        for read in (list, lambda found: found[1]):
            with pytest.raises(ModelError, match=r"model\.gguf: 'key'\[1\] is not UTF-8: b'\\xff\\xfe'"):
                read(gguf.metadata["key"])


def test_tensor_data_is_a_view_of_the_mapping(write: Write) -> None:
    tensors = [RawTensor(name="a", shape=(32, 3), type=TensorType.Q8_0), RawTensor(name="b", shape=(5,))]
    content = raw.gguf_bytes({}, tensors)
    with GgufFile.open(write(content)) as gguf:
        for tensor in gguf.tensors.values():
            data = tensor.data
            assert data.tobytes() == content[tensor.offset : tensor.offset + tensor.bytes]
            assert np.shares_memory(data, gguf.file.data)
            assert not data.flags.writeable
            assert tensor.offset % gguf.alignment == 0
        assert (gguf.tensors["a"].bytes, gguf.tensors["b"].bytes) == (102, 20)


def test_views_outlive_the_file(write: Write) -> None:
    gguf = GgufFile.open(write(raw.gguf_bytes({"texts": ["x"]}, [RawTensor(name="a", shape=(4,))])))
    data, texts = gguf.tensors["a"].data, gguf.metadata["texts"]
    gguf.close()
    assert (data[1], texts[0]) == (1, "x")


def test_an_alignment_of_its_own(write: Write) -> None:
    tensors = [RawTensor(name="a", shape=(3,)), RawTensor(name="b", shape=(3,))]
    with GgufFile.open(write(raw.gguf_bytes({"general.alignment": 256}, tensors, alignment=256))) as gguf:
        assert gguf.alignment == 256
        assert gguf.tensors["b"].offset - gguf.tensors["a"].offset == 256


def test_typed_values(write: Write) -> None:
    with GgufFile.open(write(raw.gguf_bytes({"s": "x", "i": 3, "f": 0.5, "b": True, "a": [1, 2]}))) as gguf:
        found = gguf.metadata
        assert (found.text("s"), found.integer("i"), found.number("f"), found.flag("b")) == ("x", 3, 0.5, True)
        assert type(found.number("i")) is float
        assert (found.text("none", None), found.integer("none", 4), found.flag("none", False)) == (None, 4, False)
        for read, key, message in [
            (found.text, "none", "key 'none' is missing"),
            (found.number, "none", "key 'none' is missing"),
            (found.text, "i", "key 'i' is int 3, expected a string"),
            (found.integer, "b", "key 'b' is bool True, expected an integer"),
            (found.integer, "f", "key 'f' is float 0.5, expected an integer"),
            (found.number, "s", "key 's' is the string 'x', expected a number"),
            (found.flag, "a", "key 'a' is an array, expected a bool"),
        ]:
            with pytest.raises(ModelError, match=message):
                read(key)


@pytest.mark.parametrize("name", ["f32", "q8_0", "q4_k"])
def test_the_same_as_the_reference_reader(mini_model: Callable[[str], Path], name: str) -> None:
    reference = GGUFReader(mini_model(name))
    with GgufFile.open(mini_model(name)) as gguf:
        assert list(gguf.metadata) == [key for key in reference.fields if not key.startswith("GGUF.")]
        for key, found in gguf.metadata.items():
            assert (found if isinstance(found, str | int | float) else list(found)) == reference.fields[key].contents()
        assert [t.name for t in reference.tensors] == list(gguf.tensors)
        for tensor in reference.tensors:
            found = gguf.tensors[tensor.name]
            assert found.shape == tuple(tensor.shape)
            assert found.type.name == tensor.tensor_type.name
            assert found.offset == tensor.data_offset
            assert gguf.tensors[tensor.name].data.tobytes() == tensor.data.tobytes()


def walk(content: bytes, count: int) -> None:
    """The least that has to be done to find `count` strings."""
    position, length_at = 0, struct.Struct("<Q").unpack_from
    for _ in range(count):
        position += 8 + length_at(content, position)[0]
    assert position == len(content)


def cpu_s(work: Callable[[], object]) -> float:
    """Processor time that it takes, in seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def test_opening_a_vocabulary_of_150_000_costs_little_more_than_to_walk_over_it(write: Write) -> None:
    count = 151_936
    tokens, merges = [f"Ġtoken{i}" for i in range(count)], [f"Ġa{i} b{i}" for i in range(count)]
    path = write(raw.gguf_bytes({"tokens": tokens, "types": [1] * count, "merges": merges}))
    with GgufFile.open(path) as gguf:
        assert gguf.metadata["merges"][-1] == merges[-1]
    strings = b"".join(map(raw.string, [*tokens, *merges]))
    rounds = [(cpu_s(lambda: GgufFile.open(path).close()), cpu_s(lambda: walk(strings, 2 * count))) for _ in range(7)]
    opening, walking = (min(seconds) for seconds in zip(*rounds, strict=True))
    assert opening < 2 * walking, rounds  # 0.6 of it; to make 300,000 texts would be more than that
