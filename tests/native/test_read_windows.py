"""The requests that direct reads become: a twin in pages, and the cases one by one."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import native

Range = tuple[int, int, int]
PAGE = 4096
MOST = 8 << 20


def merged(ranges: list[Range]) -> list[Range]:
    descriptors, offsets, counts = zip(*ranges, strict=True) if ranges else ((), (), ())
    windows = native.merge_windows(
        np.array(descriptors, np.int32), np.array(offsets, np.int64), np.array(counts, np.int64)
    )
    return list(zip(*(column.tolist() for column in windows), strict=True))


def twin(ranges: list[Range]) -> list[Range]:
    """Every page that has a byte of a range, in runs, cut."""
    pages = sorted({(d, p) for d, at, n in ranges if n for p in range(at // PAGE, (at + n - 1) // PAGE + 1)})
    windows: list[Range] = []
    for (descriptor, _), group in groupby(
        enumerate(pages), lambda numbered: (numbered[1][0], numbered[1][1] - numbered[0])
    ):
        run = [page for _, (_, page) in group]
        for from_ in range(0, len(run), MOST // PAGE):
            part = run[from_ : from_ + MOST // PAGE]
            windows.append((descriptor, part[0] * PAGE, len(part) * PAGE))
    return windows


NEAR_PAGES = st.builds(lambda page, off: max(0, page * PAGE + off), st.integers(0, 60), st.integers(-2, 2))
RANGES = st.tuples(st.integers(-1, 2), NEAR_PAGES, st.one_of(st.integers(0, 3), NEAR_PAGES))


@given(st.lists(RANGES, max_size=12))
@example([(0, 5, MOST - 5), (0, MOST + 1, 1)])
@example([(0, 4095, 3 * MOST), (0, MOST, 2), (1, 3 * MOST, 1)])
def test_windows_are_the_pages_of_the_ranges(ranges: list[Range]) -> None:
    assert merged(ranges) == twin(ranges)


@pytest.mark.parametrize(
    ("ranges", "windows"),
    [
        ([], []),
        ([(3, 5000, 0)], []),
        ([(3, 5000, 10)], [(3, 4096, 4096)]),
        ([(3, 4095, 2)], [(3, 0, 8192)]),
        ([(0, 8192, 1), (0, 0, 4096), (0, 4096, 4096)], [(0, 0, 12288)]),  # they touch
        ([(0, 0, 9000), (0, 4096, 10)], [(0, 0, 12288)]),  # they overlap, or are the same
        ([(0, 10, 5), (0, 10, 5)], [(0, 0, 4096)]),
        ([(0, 0, 4096), (0, 8192, 4096)], [(0, 0, 4096), (0, 8192, 4096)]),  # a gap of one page
        ([(1, 0, 4096), (0, 4096, 4096)], [(0, 4096, 4096), (1, 0, 4096)]),  # another file
        ([(0, 0, MOST), (0, MOST, 1)], [(0, 0, MOST), (0, MOST, 4096)]),  # too large for one
    ],
)
def test_each_case_alone(ranges: list[Range], windows: list[Range]) -> None:
    assert merged(ranges) == windows


@pytest.mark.parametrize("range_", [(0, -1, 5), (0, 0, -1), (0, 2**63 - 1, 1), (0, 2**62, 2**62)])
def test_what_no_file_has_is_refused(range_: Range) -> None:
    with pytest.raises(ValueError, match="out of range"):
        merged([range_])
