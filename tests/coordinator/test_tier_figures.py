"""Shares and rates from counters, whatever a worker claims to have counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import tiers, worker_row

from coordinator.cli.tier_figures import HITS, Tiers
from protocol.expert_sources import TIER_COUNTS

MOST = 2**63 - 1


def figures(calls: int = 1, busy_s: float = 0.0, **counts: int) -> Tiers:
    made = Tiers.of(worker_row("w", calls=calls, busy_s=busy_s, tiers=tiers(**counts)))
    assert made is not None
    return made


def test_hits_are_parts_of_all_that_were_looked_for() -> None:
    one = figures(copy_hits=6, cache_hits=3, file_reads=1)
    assert [one.share(hit) for hit in HITS] == [0.6, 0.3, 0.1]
    assert [figures().share(hit) for hit in HITS] == [None, None, None]


def test_time_is_spent_in_kernels_or_waiting_for_files() -> None:
    one = figures(busy_s=3.1, file_read_us=1_900_000, file_read_bytes=380)
    assert one.reading_share == pytest.approx(0.38)
    assert one.read_rate == pytest.approx(200.0)
    assert figures(busy_s=1.0).reading_share == 0.0
    assert figures().reading_share is None
    assert figures(file_read_bytes=5).read_rate is None


def test_rates_of_loading_and_worth_of_hints() -> None:
    one = figures(loaded_bytes=10, load_us=5_000_000, hints_hinted=4, hints_useful=3)
    assert (one.load_rate, one.useful_share) == (2.0, 0.75)
    assert figures(fetched_bytes=10, fetch_us=4_000_000).fetch_rate == 2.5
    assert (figures().load_rate, figures().useful_share) == (None, None)


def test_what_was_counted_between_two_reports() -> None:
    before, after = (
        figures(calls=3, busy_s=1.0, cache_hits=5),
        figures(calls=7, busy_s=1.5, cache_hits=6, file_reads=3),
    )
    between = after.minus(before)
    assert (between.calls, between.kernel_s, between["cache_hits"], between["file_reads"]) == (4, 0.5, 1, 3)
    assert before.minus(after) == figures(calls=0), "nothing becomes less"


def test_before_its_first_beat_nothing_is_known_of_a_worker() -> None:
    assert Tiers.of(worker_row("w", since_start=None, source=None, tiers={})) is None


@given(
    st.dictionaries(st.sampled_from(TIER_COUNTS), st.sampled_from([0, 1, MOST])), st.sampled_from([0.0, MOST * 1e-6])
)
def test_whatever_is_claimed_shares_are_shares(counts: dict[str, int], busy_s: float) -> None:
    one = Tiers(source="mapped", calls=MOST, kernel_s=busy_s, counts=counts)
    for share in (*map(one.share, HITS), one.reading_share):
        assert share is None or 0.0 <= share <= 1.0
    for rate in (one.read_rate, one.load_rate, one.useful_share):
        assert rate is None or 0.0 <= rate < 1e26
