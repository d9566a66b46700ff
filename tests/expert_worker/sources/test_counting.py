"""What each source counts, and what it holds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from open_bank import open_bank
from source_cases import BLOB, EXPERTS, LAYERS, SOURCES, copied, make_ready, small_model, sums_of

from expert_worker.sources.direct import DirectSource


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small file of this test's own."""
    return small_model(tmp_path)


def forget(path: Path) -> None:
    """Have the page cache give up a file that nobody maps."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def test_copies_of_all_are_all_hits(model: Path) -> None:
    with open_bank(model, source=SOURCES["all copied"]) as bank:
        make_ready(bank)
        sums_of(bank, 0, [1, 2, 5])
        counts = bank.counts()
    assert (counts["copy_hits"], counts["cache_hits"], counts["file_reads"]) == (3, 0, 0)
    assert counts["copied_experts"] == LAYERS * EXPERTS
    assert counts["copied_bytes"] == LAYERS * EXPERTS * BLOB
    assert counts["loaded_bytes"] > 0


def test_the_hottest_are_copied_within_a_budget(model: Path) -> None:
    rank = np.arange(LAYERS * EXPERTS, dtype=np.int32)[::-1].reshape(LAYERS, EXPERTS)
    with open_bank(model, source=copied(3 * BLOB)) as bank:
        make_ready(bank, rank=np.ascontiguousarray(rank))
        hot = list(range(EXPERTS - 3, EXPERTS))
        sums_of(bank, LAYERS - 1, hot)
        assert bank.counts()["copy_hits"] == 3
        bank.source.shed(1)  # the coldest of these goes
        assert bank.table.placed[LAYERS - 1, hot].tolist() == [0, 1, 1]
        assert bank.counts()["shed_bytes"] == BLOB


def test_what_is_not_assigned_any_more_is_given_up(model: Path) -> None:
    with open_bank(model, source=SOURCES["all copied"]) as bank:
        make_ready(bank)
        half = np.zeros((LAYERS, EXPERTS), np.uint8)
        half[:, ::2] = 1
        make_ready(bank, half)
        assert bank.counts()["copied_experts"] == LAYERS * EXPERTS // 2


def test_slots_keep_what_was_used_last(model: Path) -> None:
    with open_bank(model, source=lambda table: SOURCES["few slots"](table)) as bank:
        make_ready(bank)
        for expert in range(EXPERTS):
            sums_of(bank, 0, [expert])
        sums_of(bank, 1, [0, 1, 2, 3])  # nine slots: three of layer 0 go, those used first
        before = bank.counts()
        sums_of(bank, 0, [3, 4, 5, 6, 7])
        after = bank.counts()
        assert after["copy_hits"] - before["copy_hits"] == 5
        assert after["file_reads"] == before["file_reads"]
        sums_of(bank, 0, [0])
        assert bank.counts()["file_reads"] == after["file_reads"] + 1


def test_what_a_hint_has_brought_need_not_be_read(model: Path) -> None:
    with open_bank(model, source=SOURCES["many slots"]) as bank:
        make_ready(bank)
        bank.warm(1, np.array([2, 3], np.int32), step=7)
        sums_of(bank, 1, [2, 4])
        counts = bank.counts()
    assert (counts["hints_hinted"], counts["copy_hits"], counts["file_reads"]) == (2, 1, 1)


def test_hints_get_no_slots_beyond_their_share_after_slots_were_given_up(model: Path) -> None:
    with open_bank(model, source=SOURCES["few slots"]) as bank:  # nine, of which hints may have two
        make_ready(bank)
        for expert in range(EXPERTS - 1):
            sums_of(bank, 0, [expert])
        bank.source.warm(1, np.array([0, 1, 2, 3], np.int32))
        assert bank.table.placed[1].sum() == 2
        bank.source.shed(4 * BLOB)  # one would be their share of five
        bank.source.warm(2, np.array([0, 1, 2, 3], np.int32))
        assert bank.table.placed[2].sum() == 0


def test_slots_that_are_filled_are_promised_no_more(model: Path) -> None:
    told: list[int] = []

    class Account:
        def touched(self, copied_bytes: int) -> None:
            told.append(copied_bytes)

        def close(self) -> None:
            told.append(0)

    with open_bank(model, source=lambda table: DirectSource(table, 9 * BLOB, Account())) as bank:
        make_ready(bank)
        sums_of(bank, 0, [0, 1])
        assert told == [], "whoever computes waits for no account"
        bank.tend(1.0)
        assert told == [2 * BLOB]
    assert told == [2 * BLOB, 0]


def test_pages_that_are_not_there_are_brought_together(model: Path) -> None:
    forget(model)
    with open_bank(model) as bank:
        sums_of(bank, 1, [2, 4])
        first = bank.counts()
        sums_of(bank, 1, [2, 4])
        second = bank.counts()
    assert first["file_reads"] + first["cache_hits"] == 2
    assert (second["file_reads"], second["cache_hits"]) == (first["file_reads"], first["cache_hits"] + 2)


def test_nothing_is_left_open(model: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    for source in SOURCES.values():
        with open_bank(model, source=source) as bank:
            make_ready(bank)
        before = descriptors()
        for _ in range(5):
            with open_bank(model, source=source) as bank:
                make_ready(bank)
        assert descriptors() <= before  # fewer, if something of another test has ended
