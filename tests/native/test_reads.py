"""Batches of reads: the file's bytes in every way, errors that cost no more than they must, nothing left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import native

PAGE = 4096
MOST = 8 << 20
SMALL, LARGE = 37 * PAGE + 5, 2 * MOST + 3 * PAGE + 77

U8 = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A small and a large file, each opened twice; what they hold."""

    data: list[U8]
    cached: list[int]
    direct: list[int]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    folder = tmp_path_factory.mktemp("reads")
    rng = np.random.default_rng(5)
    data = [rng.integers(0, 256, size, np.uint8) for size in (SMALL, LARGE)]
    cached, direct = [], []
    for i, content in enumerate(data):
        (folder / str(i)).write_bytes(content.tobytes())
        os.sync()
        cached.append(os.open(folder / str(i), os.O_RDONLY | os.O_NONBLOCK))
        direct.append(open_direct(folder / str(i)))
    yield Files(data=data, cached=cached, direct=direct)
    for descriptor in cached + [one for one in direct if one >= 0]:
        os.close(descriptor)


def open_direct(path: Path) -> int:
    """Past the page cache, or -1 where the file system has no such thing (tmpfs)."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return -1


@pytest.fixture(scope="module", params=["io_uring", "threads"])
def reader(request: pytest.FixtureRequest) -> Iterator[native.Reader]:
    made = native.Reader(uring=request.param == "io_uring", depth=16, threads=4)
    if made.kind != request.param:
        pytest.skip("this kernel does not let us use io_uring")
    yield made
    made.close()


@pytest.fixture(params=["cached", "direct", "whole pages"])
def way(request: pytest.FixtureRequest, files: Files) -> str:
    if request.param != "cached" and files.direct[0] < 0:
        pytest.skip("this file system has no direct reads")
    return str(request.param)


def room(count: int, offset: int) -> U8:
    """Memory for `count` bytes at `offset` modulo a page, whose first and last page are its own."""
    memory = np.full(count + 3 * PAGE, 0xA5, np.uint8)
    start = -memory.ctypes.data % PAGE + offset % PAGE
    return memory[start : start + count]


def owns_its_pages(array: U8) -> bool:
    """Whether all memory of its first and last page is of the buffer that it is a part of."""
    whole = array if array.base is None else array.base
    start, end = array.ctypes.data // PAGE * PAGE, -(-(array.ctypes.data + array.size) // PAGE) * PAGE
    return bool(whole.ctypes.data <= start and end <= whole.ctypes.data + whole.size)


def read(
    reader: native.Reader, descriptors: Sequence[int], offsets: Sequence[int], into: Sequence[U8], way: str = "cached"
) -> native.ReadResult:
    if way == "whole pages":  # what the caller promises: else a read may rightly write over somebody else's memory
        assert all(owns_its_pages(array) for array in into if array.size)
    return reader.read(
        np.array(descriptors, np.int32), np.array(offsets, np.int64), into, way != "cached", way == "whole pages"
    )


# --- bytes ---------------------------------------------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """File, offset, count, offset of the destination modulo a page."""
    file, size = draw(st.sampled_from([(0, SMALL), (0, SMALL), (0, SMALL), (1, LARGE)]))
    near_page = st.integers(0, size // PAGE).map(lambda page: page * PAGE)
    offset = draw(st.one_of(st.integers(0, size), near_page))
    count = draw(
        st.one_of(st.integers(0, min(3 * PAGE, size - offset)), st.integers(0, size - offset), st.just(size - offset))
    )
    return file, offset, count, draw(st.one_of(st.just(offset % PAGE), st.just(0), st.integers(0, PAGE - 1)))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ranges(), max_size=10))
def test_every_range_has_the_file_s_bytes(
    reader: native.Reader, files: Files, way: str, wanted: list[tuple[int, int, int, int]]
) -> None:
    descriptors = files.cached if way == "cached" else files.direct
    memory = [np.full(count + 4 * PAGE, 0xA5, np.uint8) for _, _, count, _ in wanted]
    starts = [-m.ctypes.data % PAGE + PAGE + at for m, (*_, at) in zip(memory, wanted, strict=True)]
    into = [m[s : s + count] for m, s, (_, _, count, _) in zip(memory, starts, wanted, strict=True)]
    result = read(reader, [descriptors[file] for file, *_ in wanted], [offset for _, offset, *_ in wanted], into, way)
    assert result.failed.tolist() == []
    for m, s, got, (file, offset, count, _) in zip(memory, starts, into, wanted, strict=True):
        np.testing.assert_array_equal(got, files.data[file][offset : offset + count])
        edge = PAGE if way == "whole pages" else 1  # nothing else is written
        first, last = (m.ctypes.data + s) // edge * edge, -(-(m.ctypes.data + s + count) // edge) * edge
        assert (m[: first - m.ctypes.data] == 0xA5).all()
        assert (m[last - m.ctypes.data :] == 0xA5).all()


def test_more_than_the_scratch_holds_goes_through_it_in_turns(reader: native.Reader, files: Files) -> None:
    if files.direct[1] < 0:
        pytest.skip("this file system has no direct reads")
    rng = np.random.default_rng(6)
    descriptors = [os.dup(files.direct[1]) for _ in range(6)]  # each has windows of its own: 96 MiB
    try:
        cuts = [np.sort(rng.choice(LARGE // PAGE, 2 * n, replace=False)) * PAGE + 9 for n in (1, 2, 9, 1, 30, 3)]
        parts = [(d, a, b) for d, c in zip(descriptors, cuts, strict=True) for a, b in c.reshape(-1, 2).tolist()]
        parts += [(d, 1, LARGE - 1) for d in descriptors[::2]]
        into = [np.empty(b - a, np.uint8) for _, a, b in parts]
        for _ in range(2):
            result = read(reader, [d for d, *_ in parts], [a for _, a, _ in parts], into, "direct")
            assert result.failed.tolist() == []
            for got, (_, a, b) in zip(into, parts, strict=True):
                np.testing.assert_array_equal(got, files.data[1][a:b])
                got[:] = 0
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_what_is_aligned_is_read_where_it_belongs(reader: native.Reader, files: Files) -> None:
    if files.direct[1] < 0:
        pytest.skip("this file system has no direct reads")
    aligned = [room(MOST + 2 * PAGE, 0), room(PAGE, 0)]
    result = read(reader, [files.direct[1]] * 2, [PAGE, 0], aligned, "direct")
    assert (result.requests, result.bytes) == (3, MOST + 3 * PAGE)  # not merged, though they touch
    tail = room(LARGE - 5, 5)
    result = read(reader, [files.direct[1]], [5], [tail], "whole pages")
    assert result.failed.tolist() == []
    assert result.bytes == LARGE
    np.testing.assert_array_equal(tail, files.data[1][5:])


def test_neighbours_are_one_request(reader: native.Reader, files: Files) -> None:
    if files.direct[0] < 0:
        pytest.skip("this file system has no direct reads")
    into = [np.empty(900, np.uint8) for _ in range(100)]
    result = read(reader, [files.direct[0]] * 100, range(7, 90007, 900), into, "direct")
    assert (result.requests, result.bytes, result.max_in_flight) == (1, 22 * PAGE, 1)
    np.testing.assert_array_equal(np.concatenate(into), files.data[0][7:90007])


# --- how many at once ----------------------------------------------------------------------------------------------


def test_the_queue_is_kept_full(reader: native.Reader, files: Files, way: str) -> None:
    descriptor = (files.cached if way == "cached" else files.direct)[1]
    depth = 16 if reader.kind == "io_uring" else 4
    for n in (1, 3, depth, depth + 9):
        into = [room(100, 0) for _ in range(n)]
        result = read(reader, [descriptor] * n, [2 * PAGE * i for i in range(n)], into, way)
        assert (result.requests, result.max_in_flight) == (n, min(n, depth))
        assert result.failed.tolist() == []
        assert result.us >= 0


def test_nothing_is_nothing(reader: native.Reader) -> None:
    result = read(reader, [], [], [])
    assert (result.bytes, result.requests, result.max_in_flight, result.failed.tolist()) == (0, 0, 0, [])
    assert read(reader, [-1], [0], [np.empty(0, np.uint8)]).failed.tolist() == []


# --- errors --------------------------------------------------------------------------------------------------------


def test_the_end_of_the_file_fails_only_what_lies_behind_it(reader: native.Reader, files: Files, way: str) -> None:
    descriptor = (files.cached if way == "cached" else files.direct)[0]
    offsets = [SMALL - 9, SMALL - 9, SMALL, SMALL - 2 * PAGE, SMALL + 5 * PAGE, 0]
    into = [room(n, at) for n, at in zip((9, 10, 1, 2 * PAGE, 5, 8), offsets, strict=True)]
    result = read(reader, [descriptor] * 6, offsets, into, way)
    assert (result.failed.tolist(), result.errors.tolist()) == ([1, 2, 4], [0, 0, 0])
    for i in (0, 3, 5):
        np.testing.assert_array_equal(into[i], files.data[0][offsets[i] : offsets[i] + into[i].size])


def test_a_file_that_was_cut_short_after_it_was_opened(reader: native.Reader, tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as file:
        os.truncate(path, PAGE + 3)
        into = [np.empty(PAGE, np.uint8) for _ in range(3)]
        result = read(reader, [file.fileno()] * 3, [0, PAGE, 2 * PAGE], into)
    assert (result.failed.tolist(), result.errors.tolist()) == ([1, 2], [0, 0])


def test_one_that_fails_costs_only_itself_when_all_are_under_way(files: Files) -> None:
    reader = native.Reader(depth=64)
    if reader.kind != "io_uring":
        pytest.skip("this kernel does not let us use io_uring")
    into = [np.empty(1000, np.uint8) for _ in range(48)]
    descriptors = [files.cached[1]] * 48
    descriptors[20] = -1
    offsets = [50_000 * i for i in range(48)]
    result = read(reader, descriptors, offsets, into)
    assert (result.failed.tolist(), result.errors.tolist(), result.requests) == ([20], [errno.EBADF], 48)
    for i in (0, 19, 21, 47):  # they were awaited
        np.testing.assert_array_equal(into[i], files.data[1][offsets[i] : offsets[i] + 1000])


@pytest.mark.parametrize("uring", [True, False])
def test_after_an_error_nothing_is_issued_and_each_can_be_read_alone(files: Files, uring: bool, way: str) -> None:
    reader = native.Reader(depth=1, threads=1, uring=uring)
    good = (files.cached if way == "cached" else files.direct)[0]
    folder = os.open("/", os.O_RDONLY)
    try:
        into = [room(100, 0) for _ in range(16)]
        offsets = [2 * PAGE * i for i in range(16)]
        descriptors = [good] * 16
        descriptors[3] = folder  # the highest descriptor or the fourth: either way others come before it
        result = read(reader, descriptors, offsets, into, way)
        failed = dict(zip(result.failed.tolist(), result.errors.tolist(), strict=True))
        assert failed.pop(3) == errno.EISDIR
        assert set(failed.values()) <= {errno.ECANCELED}
        assert result.requests == 16 - len(failed)
        if way == "cached":
            assert sorted(failed) == list(range(4, 16))
        for i in result.failed.tolist():
            alone = read(reader, [descriptors[i]], [offsets[i]], [into[i]], way)
            assert alone.failed.tolist() == ([0] if i == 3 else [])
        for i in set(range(16)) - {3}:
            np.testing.assert_array_equal(into[i], files.data[0][offsets[i] : offsets[i] + 100])
    finally:
        os.close(folder)


def test_what_cannot_be_asked_is_refused(reader: native.Reader, files: Files) -> None:
    byte = np.empty(1, np.uint8)
    fixed = np.empty(1, np.uint8)
    fixed.flags.writeable = False
    for into, match in (([fixed], "item 0"), ([b"1"], "item 0"), ([np.empty(1, np.int8)], "item 0"), ([], "into: 1")):
        with pytest.raises(ValueError, match=match):
            read(reader, [files.cached[0]], [0], into)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="out of range"):
        read(reader, [files.cached[0]], [-1], [byte])
    with pytest.raises(ValueError, match="offsets: 1 expected, found 2"):
        read(reader, [files.cached[0]], [0, 1], [byte])
    with pytest.raises(ValueError, match="whole_pages"):
        reader.read(np.zeros(1, np.int32), np.zeros(1, np.int64), [byte], False, True)


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"depth": 4097}, {"threads": 0}, {"threads": 257}])
def test_absurd_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        native.Reader(**wrong)  # type: ignore[arg-type]


# --- many of them, and none left -----------------------------------------------------------------------------------


def check_random_reads(reader: native.Reader, files: Files, seed: int) -> None:
    rng = np.random.default_rng(seed)
    direct = files.direct[1] >= 0 and seed % 2 == 0
    for _ in range(8):
        offsets = rng.integers(0, LARGE - 50_000, 20)
        into = [np.empty(n, np.uint8) for n in rng.integers(1, 50_000, 20)]
        descriptor = (files.direct if direct else files.cached)[1]
        assert (
            read(reader, [descriptor] * 20, offsets.tolist(), into, "direct" if direct else "cached").failed.size == 0
        )
        for got, at in zip(into, offsets, strict=True):
            np.testing.assert_array_equal(got, files.data[1][at : at + got.size])


@pytest.mark.parametrize("uring", [True, False])
def test_eight_threads_with_a_reader_each(files: Files, uring: bool) -> None:
    readers = [native.Reader(depth=8, threads=2, uring=uring) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: check_random_reads(readers[i], files, i), range(8)))


def test_threads_may_share_one(reader: native.Reader, files: Files) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: check_random_reads(reader, files, i), range(4)))


@pytest.mark.parametrize("uring", [True, False])
def test_nothing_is_left_of_a_reader(files: Files, uring: bool) -> None:
    byte = np.empty(1, np.uint8)
    descriptors, threads = os.listdir("/proc/self/fd"), threads_here()
    for i in range(50):
        reader = native.Reader(threads=3, uring=uring)
        read(reader, [files.cached[0]], [0], [byte])
        if i % 2:
            reader.close()
            reader.close()
            with pytest.raises(ValueError, match="closed"):
                read(reader, [files.cached[0]], [0], [byte])
        del reader
    assert len(os.listdir("/proc/self/fd")) <= len(descriptors)  # fewer, if something of another test has ended
    deadline = time.monotonic() + 10  # a joined thread's entry may outlive the join by some milliseconds
    while threads_here() - threads and time.monotonic() < deadline:
        os.sched_yield()
    assert not threads_here() - threads


def threads_here() -> set[str]:
    """Ours: those of io_uring are the kernel's, which ends them when it likes."""
    found = set()
    for one in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError):
            if not Path(f"/proc/self/task/{one}/comm").read_text().startswith("iou-"):
                found.add(one)
    return found
