"""What `expertmesh status` shows of a report, on wide terminals, narrow ones, and none."""

from __future__ import annotations

import io
from typing import Any

import pytest
from reports import cluster_report, tiers, worker_row
from rich.console import Console

from coordinator.cli.load import Load
from coordinator.cli.status_page import Drawn, as_text
from coordinator.cli.status_view import Page, page
from protocol.expert_sources import TIER_COUNTS

READER = {
    **{"cache_hits": 930, "file_reads": 70, "file_read_bytes": 380 << 20, "file_read_us": 1_900_000},
    **{"hints_hinted": 40, "hints_useful": 30, "hints_late": 4, "hints_wasted": 6, "hints_gated": 9, "hints_off": 1},
}
COPIER = {
    **{"copy_hits": 500, "copied_experts": 96, "copied_bytes": 3 << 30, "locked_bytes": 1 << 30},
    **{"loaded_bytes": 4 << 30, "load_us": 2_000_000, "shed_bytes": 1 << 30, "fallbacks": 2},
}
LOOKAHEAD = {
    **{
        "name": "lookahead",
        "pid": 3,
        "host": "box",
        "state": "ready",
        "inputs": 120,
        "hints": 480,
        "busy_s": 0.4,
        "beat_age_s": 0.2,
    },
    **{"resident_bytes": 2**20, "dropped": 0},
}


def full_report() -> dict[str, Any]:
    return cluster_report(
        worker_row("box-0", calls=50, busy_s=3.1, tiers=tiers(**READER)),
        worker_row("box-1", source="copies", tiers=tiers(**COPIER)),
        worker_row("gpu", role="peer", source="vram", tiers={}),
        lookahead=[LOOKAHEAD],
        inputs={"published": 121, "refused": 1, "us": 5},
        profile={"rows": 100, "experts_90": 12},
        replans=3,
    )


FULL = """\
m.gguf at ipc://@here
ready, placement 2, step 1, requests 0
avx2, local entries 0, replans 3, hedges 0, late replies 0
profile: 100 rows seen, 90 % of uses in 12 experts
! box-0 waits for files for 38% of its time: 7% of the experts that it needed had to be read, 380 MiB at 200 MiB/s
! box-0 gets no hints in 1 layer for now: they cost more than they saved
! box-1 gave up 1 GiB of copies, because memory was short
! box-1 took the files' mapping 2 times where direct reads were meant

member  role    state  threads  experts  calls   busy   beat  memory
box-0   worker  ready        2        3     50  3.1 s  0.1 s   2 MiB
box-1   worker  ready        2        3      4  0.5 s  0.1 s   2 MiB
gpu     peer    ready        2        3      4  0.5 s  0.1 s   2 MiB

where experts' bytes came from, since each process began
member  source      copies  page cache    files     read      in       rate  time reading
box-0   mapped           0   930 (93%)  70 (7%)  380 MiB  1.90 s  200 MiB/s           38%
box-1   copies  500 (100%)           0        0                                        0%
gpu     vram

copies in memory
member  experts  bytes  locked  loaded      in     rate   shed  fallbacks
box-1        96  3 GiB   1 GiB   4 GiB  2.00 s  2 GiB/s  1 GiB          2

experts hinted at
member  hinted    useful  late  wasted  harmful  gated  stale  missed  layers off
box-0       40  30 (75%)     4       6        0      9      0       0           1

lookahead: 121 layer inputs published, 1 missed by somebody
process    host  state  inputs  hints   busy   beat  memory  dropped
lookahead  box   ready     120    480  0.4 s  0.2 s   1 MiB        0
"""


def page_of(*reports: dict[str, Any]) -> Page:
    """Of these reports, which came a second apart."""
    load = Load()
    for second, report in enumerate(reports):
        load.take(report, float(second))
    return page("m.gguf at ipc://@here", load)


def remarks_of(*workers: dict[str, Any], **changes: Any) -> list[str]:
    return list(page_of(cluster_report(*workers, **changes)).remarks)


def drawn(shown: Page, width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, highlight=False, color_system=None).print(Drawn(shown))
    return text.getvalue().splitlines()


def test_all_of_it_as_plain_text() -> None:
    assert as_text(page_of(full_report())) == FULL


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_nothing_is_lost_where_it_is_narrow(width: int) -> None:
    """Words may move to the next line; no figure is cut off."""
    lines = drawn(page_of(full_report()), width)
    assert all(len(line) <= width for line in lines)
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    words = set(" ".join(lines).replace(",", "").replace(":", "").split())
    wanted = set(FULL.replace(",", "").replace(":", "").split())
    assert wanted <= words | {"member", "process"}, wanted - words


def test_where_nothing_is_to_be_told_there_is_no_table() -> None:
    titles = [section.title for section in page_of(cluster_report()).sections]
    assert titles == []
    titles = [section.title for section in page_of(cluster_report(worker_row("w"))).sections]
    assert titles == ["", "where experts' bytes came from, since each process began"]


def test_what_happened_between_two_reports_is_told_besides() -> None:
    first = cluster_report(worker_row("w", calls=1, busy_s=1.0, tiers=tiers(cache_hits=100)))
    counts = tiers(cache_hits=110, file_reads=10, file_read_us=500_000, file_read_bytes=3 << 10)
    second = cluster_report(worker_row("w", calls=2, busy_s=1.5, tiers=counts))
    shown = page_of(first, second)
    (lately,) = [section for section in shown.sections if section.title == "lately"]
    assert lately.rows == (("w", "mapped", "0", "10 (50%)", "10 (50%)", "3 KiB", "0.50 s", "6 KiB/s", "50%"),)
    said = "w waits for files for 50% of its time: 50% of the experts that it needed had to be read, 3 KiB at 6 KiB/s"
    assert shown.remarks == (said,)
    assert shown.sections[0].rows[0][6] == "50%", "busy is a part of the time as soon as that is known"


def test_a_worker_that_reads_little_is_not_spoken_of() -> None:
    assert remarks_of(worker_row("w", busy_s=10.0, tiers=tiers(file_reads=1, file_read_us=400_000))) == []


def test_a_worker_that_waits_for_what_is_on_its_way_is() -> None:
    counts = tiers(cache_hits=5, file_read_us=1_000_000)
    said = "w waits for files for 25% of its time: what hints had asked for came late"
    assert remarks_of(worker_row("w", busy_s=3.0, tiers=counts)) == [said]


def test_every_state_that_is_not_as_it_should_be_has_a_sentence() -> None:
    assert remarks_of(
        worker_row("a", state="suspect"),
        worker_row("b", state="loading", progress=[2, 6]),
        worker_row(
            "k",
            state="loading",
            tiers=tiers(fetched_bytes=1 << 30, fetch_us=10_000_000, fetch_left_bytes=3 << 30, fetched_damaged=1),
        ),
        worker_row("c", state="failed", reason="no room"),
        worker_row("d", state="gone", reason="it left", since_start=None, beat_age_s=None),
        worker_row("e", state="lost", reason="silent for 3.1 s", since_start=None),
        worker_row("f", state="draining"),
        worker_row("g", sign="frozen", why="nothing was heard of it for 2.6 s"),
        worker_row("h", state="suspect", sign="stuck", why="something holds it up"),
        worker_row("i", sign="busy", why="it has computed the work in hand for 3.0 s"),
        worker_row("j", state="hello"),
    ) == [
        "a is late with an answer, and gets no work until that has come",
        "b makes its experts ready: 2 of 6 layers",
        "k makes its experts ready: 6 of 6 layers; it has fetched 1 GiB of weights at 102 MiB/s, 3 GiB are to come",
        "k fetched 1 piece of weights again, which had come damaged",
        "c gets no work: no room",
        "d is gone: it left",
        "e is lost: silent for 3.1 s",
        "f leaves as soon as others hold its experts",
        "g is frozen: nothing was heard of it for 2.6 s",
        "h is late with an answer, and gets no work until that has come; something holds it up",
    ]


def test_how_a_worker_is_stands_beside_its_state_if_there_is_something_to_say() -> None:
    frozen = worker_row("a", state="suspect", sign="frozen", why="nothing was heard of it for 2.6 s")
    (members, *_) = page_of(cluster_report(frozen, worker_row("b", sign="busy"))).sections
    assert [row[2] for row in members.rows] == ["suspect, frozen", "ready"]


def test_work_of_the_coordinator_is_spoken_of_where_there_are_others_for_it() -> None:
    said = "the coordinator itself computed 50% of all entries: nobody else had them in time"
    assert remarks_of(worker_row("w", entries=5), local_entries=5) == [said]
    assert remarks_of(worker_row("w", entries=500), local_entries=5) == []
    assert remarks_of(local_entries=5) == []


@pytest.mark.parametrize("width", [40, 120])
def test_the_greatest_numbers_and_the_worst_names_are_shown_and_break_nothing(width: int) -> None:
    names = ["[/b]", "\x1b[31mred", "a\nb", "\u202eback", "x" * 64]
    most = dict.fromkeys(TIER_COUNTS, 2**63 - 1)
    rows = [worker_row(name, tiers=most, calls=2**63 - 1, busy_s=9.2e12, threads=2**31) for name in names]
    worst = cluster_report(*rows, lookahead=[LOOKAHEAD | {"name": names[0], "host": names[1]}], model=names[2])
    shown = page_of(cluster_report(*(worker_row(name) for name in names)), worst)
    text = as_text(shown)
    assert all(line.isprintable() for line in [*text.splitlines(), *drawn(shown, width)])
    assert all(f"\n{shown_name}" in text for shown_name in ("[/b]", "\\x1b[31mred", "a\\nb", "\\u202eback"))


def test_a_notice_is_about_the_page_itself() -> None:
    text = io.StringIO()
    Console(file=text, width=80).print(Drawn(page_of(cluster_report()), "no word of the coordinator for 3 s"))
    assert "! no word of the coordinator for 3 s\n" in text.getvalue()
