"""Where units lie in an arena and what it is called; and that no header, whatever it holds, does harm."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from expert_worker.arena_header import Progress, encode, new_header
from expert_worker.arena_layout import FILE_NAME, HEADER_BYTES, MARKS, MAX_UNITS, ArenaLayout
from expert_worker.shared_arena import Phase, SharedArena
from protocol.errors import ArenaError

UNITS = st.lists(st.tuples(st.text(max_size=20), st.integers(1, 1 << 40)), min_size=1, max_size=50).map(tuple)
LAYOUT = ArenaLayout(fingerprint="0123456789abcdef", units=(("gate", 5000), ("up", 4096), ("down", 1)))


@given(UNITS)
def test_units_lie_apart_in_order_from_pages_on_and_waste_less_than_a_page_each(
    units: tuple[tuple[str, int], ...],
) -> None:
    layout = ArenaLayout(fingerprint="a", units=units)
    ends = [HEADER_BYTES, *(start + size for start, (_, size) in zip(layout.offsets, units, strict=True))]
    assert all(0 <= start - end < 4096 for start, end in zip((*layout.offsets, layout.bytes), ends, strict=True))
    assert all(start % 4096 == 0 for start in (*layout.offsets, layout.bytes))


@given(UNITS, UNITS)
def test_only_the_same_units_have_the_same_name(
    one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...]
) -> None:
    names = [ArenaLayout(fingerprint="a", units=units).file_name for units in (one, other)]
    assert all(FILE_NAME.fullmatch(name) for name in names)
    assert (names[0] == names[1]) == (one == other)


def test_the_name_never_changes_for_what_stays_the_same() -> None:
    assert LAYOUT.file_name == "expertmesh-0123456789abcdef-2d3eeb5d68abf374.arena"
    assert ArenaLayout(fingerprint="a", units=(("x", 1),), origin="then").digest != (
        ArenaLayout(fingerprint="a", units=(("x", 1),)).digest
    )


@pytest.mark.parametrize(
    ("fingerprint", "units", "text"),
    [
        ("", (("a", 1),), "fingerprint must be 1 to 32 digits and small letters, found ''"),
        ("../a", (("a", 1),), "found '../a'"),
        ("a" * 33, (("a", 1),), "fingerprint must be"),
        ("a", (), "an arena has 1 to 3072 units, found 0"),
        ("a", (("a", 1),) * (MAX_UNITS + 1), "an arena has 1 to 3072 units, found 3073"),
        ("a", (("a", 1), ("b", 0)), "a unit has at least one byte, found 0"),
    ],
)
def test_what_cannot_be_laid_out(fingerprint: str, units: tuple[tuple[str, int], ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ArenaLayout(fingerprint=fingerprint, units=units)


@st.composite
def pages(draw: st.DrawFn) -> bytes:
    """Anything, or a header with a few bytes changed."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=HEADER_BYTES))
    marks = draw(st.just(b"\1\1\1") | st.lists(st.integers(0, 1), min_size=3, max_size=3).map(bytes))
    progress = draw(st.sampled_from(Progress))
    page = bytearray(encode(new_header(progress, draw(st.text(max_size=900)), marks), LAYOUT))
    for place in draw(st.lists(st.integers(0, 300) | st.integers(MARKS, MARKS + 4), max_size=3)):
        page[place] = draw(st.integers(0, 255))
    return bytes(page)


@settings(max_examples=300)
@given(pages(), st.just(LAYOUT.bytes) | st.integers(0, 6 * 4096), st.booleans(), st.booleans())
def test_any_header_is_an_error_or_a_good_arena_in_the_end(page: bytes, size: int, whole: bool, used: bool) -> None:
    with TemporaryDirectory(dir="/dev/shm", prefix="expertmesh-test-") as name, ExitStack() as stack:
        path = Path(name, LAYOUT.file_name)
        file = stack.enter_context(path.open("w+b"))
        path.chmod(0o600)
        file.write(page)
        file.truncate(size)
        if whole and size:
            os.posix_fallocate(file.fileno(), 0, size)
        file.flush()
        if used:
            fcntl.flock(file, fcntl.LOCK_SH)
        try:
            arena = stack.enter_context(SharedArena.open(LAYOUT, path.parent))
            assert arena.wait(10) in (Phase.OWNER, Phase.READY)
            event(arena.phase.name)
        except ArenaError as error:
            event(re.sub("[0-9].*", "", str(error).partition(".arena")[2])[:60])
            used = path.exists()
        stack.pop_all().close()
        assert used or not path.exists()
