"""Whatever a file holds, it opens or is refused with a ModelError: no other exception, no hang, no memory eaten."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf_bytes import ARRAY, MOE_METADATA, STRING, Raw, RawTensor, gguf_bytes, moe_bytes
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.errors import ModelError
from protocol.fingerprint import fingerprint
from protocol.geometry import Geometry
from protocol.gguf import GgufFile
from protocol.gguf_strings import StringArray
from protocol.layout import ExpertLayout, check_dense
from protocol.shards import ModelFiles

MODEL = moe_bytes()
HEADER_BYTES = MODEL.index(b"blk.1.ffn_down_exps.weight") + 80
SMALL = gguf_bytes(
    {"general.alignment": 64, "a": True, "b": ["x", "yz"], "c": [1, 2, 3], "d": "text", "e": 1.5},
    [RawTensor(name="t", shape=(32, 2)), RawTensor(name="u", shape=(32,), type=8)],
    alignment=64,
)

NUMBERS = st.one_of(
    st.sampled_from([0, 1, 7, 8, 9, 12, 13, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**63, 2**64 - 1]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 300),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    yield path
    path.unlink(missing_ok=True)


def open_or_refuse(path: Path, content: bytes) -> bool:
    """Write, open, and use everything; False if something was refused. Any error but ModelError gets out."""
    path.write_bytes(content)
    refusal = ""
    try:
        with ModelFiles.open(path) as gguf:
            for tensor in gguf.tensors.values():
                assert len(tensor.data) == tensor.bytes > 0
            for found in gguf.metadata.values():
                if isinstance(found, StringArray):
                    assert all(isinstance(text, str) for text in found)
            geometry = Geometry.of(gguf)
            layout = ExpertLayout.of(gguf, geometry)
            check_dense(gguf, geometry)
            assert len(fingerprint(gguf, layout)) == 16
    except ModelError as error:
        refusal = str(error)
    assert not refusal or str(path) in refusal
    return not refusal


def test_the_sound_model_opens(path: Path) -> None:
    assert open_or_refuse(path, MODEL)


@given(content=st.binary(max_size=300))
@example(content=b"")
def test_random_bytes(path: Path, content: bytes) -> None:
    assert not open_or_refuse(path, content)


@given(content=st.binary(max_size=300), tensors=NUMBERS, keys=NUMBERS)
def test_random_bytes_after_a_sound_start(path: Path, content: bytes, tensors: int, keys: int) -> None:
    open_or_refuse(path, struct.pack("<4sIQQ", b"GGUF", 3, tensors, keys) + content)


@given(end=st.integers(0, len(SMALL) - 1))
def test_truncated(path: Path, end: int) -> None:
    path.write_bytes(SMALL[:end])
    with pytest.raises(ModelError), GgufFile.open(path):
        pass


@settings(max_examples=300)
@given(
    base=st.sampled_from([SMALL, MODEL]),
    places=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from("BIQ"), NUMBERS), min_size=1, max_size=4
    ),
)
def test_mutated(path: Path, base: bytes, places: list[tuple[float, str, int]]) -> None:
    content = bytearray(base)
    room = min(len(base), HEADER_BYTES) - 8
    for place, layout, number in places:
        struct.pack_into("<" + layout, content, int(place * room), number & (2 ** (8 * struct.calcsize(layout)) - 1))
    open_or_refuse(path, bytes(content))


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.floats(width=32),
    st.text(max_size=10),
    st.lists(st.text(max_size=5), min_size=1, max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
    st.builds(Raw, st.integers(0, 14), st.binary(max_size=24)),
    st.builds(
        lambda kind, count, content: Raw(ARRAY, struct.pack("<IQ", kind, count) + content),
        st.integers(0, 14),
        NUMBERS,
        st.binary(max_size=40),
    ),
)
KEYS = st.sampled_from([*MOE_METADATA, "general.alignment", "split.count"])


@settings(max_examples=200)
@given(changes=st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
def test_metadata_of_any_kind(path: Path, changes: dict[str, Any]) -> None:
    open_or_refuse(path, moe_bytes(changes))


@settings(max_examples=200)
@given(
    tensors=st.lists(
        st.builds(
            RawTensor,
            name=st.one_of(st.sampled_from(["a", "token_embd.weight"]), st.binary(max_size=8)),
            shape=st.lists(NUMBERS, max_size=5).map(tuple),
            type=st.integers(0, 45),
            offset=st.one_of(NUMBERS, st.integers(0, 8).map(lambda number: 32 * number)),
            bytes=st.integers(0, 300),
        ),
        max_size=4,
    )
)
def test_tensors_of_any_kind(path: Path, tensors: list[RawTensor]) -> None:
    open_or_refuse(path, gguf_bytes({"general.architecture": "qwen3moe"}, tensors))


def test_memory_stays_in_proportion_to_the_file(path: Path) -> None:
    """Empty strings are the most that a file can hold: 8 bytes of index for each, and nothing else."""
    count = 1 << 16
    content = gguf_bytes({"key": Raw(ARRAY, struct.pack("<IQ", STRING, count) + bytes(8 * count))})
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with GgufFile.open(path) as gguf:
            assert len(gguf.metadata["key"]) == count
        assert tracemalloc.get_traced_memory()[1] < 3 * len(content)
    finally:
        tracemalloc.stop()
