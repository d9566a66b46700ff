"""Profiles as files: what is written is read, and whatever else comes is refused by name before it takes memory."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import new_file
from coordinator.profile import MAX_ROWS_SEEN, Profile
from coordinator.profile_file import MAGIC, VERSION, read_profile, write_profile
from protocol.errors import ConfigError

MARK = "0123456789abcdef"
COUNTS = np.array([[1.0, 2.5, 0.0], [4.0, 5.0, 1e15]])
PROFILE = Profile(fingerprint=MARK, rows=77, counts=COUNTS)


def head(
    magic: bytes = MAGIC,
    version: int = VERSION,
    layers: int = 2,
    experts: int = 3,
    zero: int = 0,
    rows: int = 77,
    mark: bytes = MARK.encode(),
) -> bytes:
    return struct.pack("<8sIIIIQ16s", magic, version, layers, experts, zero, rows, mark)


BODY = COUNTS.astype("<f8").tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.profile"


def refusal(path: Path, expected: Profile | None = None) -> str:
    """What is said of the file, without its name."""
    with pytest.raises(ConfigError) as caught:
        read_profile(path, expected)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ").removeprefix("not a profile that can be used: ")


def test_what_is_written_is_what_the_page_says(path: Path) -> None:
    write_profile(PROFILE, path, option="--out")
    assert path.read_bytes() == head() + BODY


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, MAX_ROWS_SEEN), st.integers(0, 2**64 - 1), st.data())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, layers: int, experts: int, rows: int, mark: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "again.profile"
    numbers = data.draw(st.lists(st.floats(0, 1e18), min_size=layers * experts, max_size=layers * experts))
    counts = np.array(numbers).reshape(layers, experts)
    made = Profile(fingerprint=f"{mark:016x}", rows=rows, counts=counts)
    write_profile(made, path, option="--out")
    found = read_profile(path, made)
    assert (found.fingerprint, found.rows) == (made.fingerprint, rows)
    np.testing.assert_array_equal(found.counts.view(np.uint64), counts.view(np.uint64))


SAID: dict[str, tuple[bytes, str]] = {
    "empty": (b"", f"it begins with b'', expected {MAGIC!r}"),
    "text": (b"layers: 3\n", f"it begins with b'layers: ', expected {MAGIC!r}"),
    "another kind": (b"GGUF" + bytes(100), f"it begins with {b'GGUF' + bytes(4)!r}, expected {MAGIC!r}"),
    "beginning of a header": (head()[:40], "40 bytes, a header of 48 is expected"),
    "beginning of a magic": (MAGIC[:3], "3 bytes, a header of 48 is expected"),
    "another version": (head(version=2) + BODY, "version 2, expected 1"),
    "no layers": (head(layers=0), "0 layers, 1 to 65535 are expected"),
    "too many experts": (head(layers=1, experts=65536), "65536 experts, 1 to 65535 are expected"),
    "too many in all": (
        head(layers=65535, experts=65535),
        "65535 layers of 65535 experts, 262144 in all at most are expected",
    ),
    "too many rows": (head(rows=2**64 - 1) + BODY, f"{2**64 - 1} rows, {MAX_ROWS_SEEN} at most are expected"),
    "something in the gap": (head(zero=9) + BODY, "9 where 0 is expected"),
    "no fingerprint": (
        head(mark=b"0123456789ABCDEF") + BODY,
        "fingerprint b'0123456789ABCDEF', expected 16 hex digits",
    ),
    "cut": (head() + BODY[:-1], "95 bytes, 96 are expected of 2 layers of 3 experts"),
    "more behind it": (head() + BODY + b"\0", "97 bytes, 96 are expected of 2 layers of 3 experts"),
    "negative": (
        head() + struct.pack("<6d", 1, 2, 3, 4, -5, 6),
        f"layer 1, expert 1 was used -5.0 times, 0 to {MAX_ROWS_SEEN} are expected",
    ),
    "not a number": (
        head() + struct.pack("<6d", 1, float("nan"), 3, 4, 5, 6),
        f"layer 0, expert 1 was used nan times, 0 to {MAX_ROWS_SEEN} are expected",
    ),
    "infinite": (
        head() + struct.pack("<6d", 1, 2, 3, 4, 5, float("inf")),
        f"layer 1, expert 2 was used inf times, 0 to {MAX_ROWS_SEEN} are expected",
    ),
}


@pytest.mark.parametrize(("content", "said"), SAID.values(), ids=SAID)
def test_what_is_no_profile_is_refused_with_what_was_found(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    assert refusal(path) == said


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    whole = head() + BODY
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refusal(path)


@given(st.binary(max_size=120), st.integers(0, 47))
def test_any_bytes_are_a_profile_or_refused(tmp_path_factory: pytest.TempPathFactory, noise: bytes, start: int) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.profile"
    whole = head() + BODY
    path.write_bytes((whole[:start] + noise + whole[start + len(noise) :])[:96])
    try:
        found = read_profile(path)
    except ConfigError as error:
        said = str(error)
    else:
        said = f"{path} has {found.counts.size} experts"
        write_profile(found, path, option="--out")
        read_profile(path, found)
    assert str(path) in said


def test_a_huge_file_is_refused_without_being_read(path: Path) -> None:
    path.write_bytes(head())
    os.truncate(path, 1 << 40)  # takes no room
    assert refusal(path) == f"{1 << 40} bytes, 96 are expected of 2 layers of 3 experts"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "a file is expected"),
        (os.mkdir, "Is a directory"),
        (lambda path: None, "No such file or directory"),
    ],
)
@pytest.mark.timeout(20)
def test_what_is_no_file_is_refused_at_once(path: Path, make: Callable[[Path], None], said: str) -> None:
    make(path)
    assert refusal(path) == said


def test_another_models_profile_is_refused_with_both_values(path: Path) -> None:
    write_profile(PROFILE, path, option="--out")
    other = Profile(fingerprint="f" * 16, rows=0, counts=COUNTS)
    assert refusal(path, other) == f"of the model {MARK}, expected {'f' * 16}"
    larger = Profile(fingerprint=MARK, rows=0, counts=np.zeros((2, 4)))
    assert refusal(path, larger) == "of 2 layers of 3 experts, expected 2 layers of 4 experts"


def test_what_was_there_stays_if_the_new_one_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(PROFILE, path, option="--out")
    before = path.read_bytes()

    def full(*anything: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new_file, "_name", full)
    newer = Profile(fingerprint=MARK, rows=78, counts=COUNTS)
    with pytest.raises(ConfigError, match=re.escape(f"--out: {path} cannot be written: No space left on device")):
        write_profile(newer, path, option="--out")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
