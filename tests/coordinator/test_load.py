"""What the table of a running cluster says, from reports and roles as values."""

from __future__ import annotations

from typing import Any

from reports import tiers, worker_row

from coordinator.cli.load import Load, worker_rows
from coordinator.supervisor import Role


def report(**busy: float) -> dict[str, Any]:
    return {"workers": [worker(name, busy_s) for name, busy_s in busy.items()]}


def worker(name: str, busy_s: float, **more: object) -> dict[str, Any]:
    return worker_row(name, **{"pid": 5, "busy_s": busy_s, "beat_age_s": 0.25, **more})


def test_load_is_what_happened_between_two_reports() -> None:
    load = Load()
    load.take(report(a=1.0), now=10.0)
    assert load.busy_share(worker("a", 1.0)) is None
    load.take(None, now=11.0)
    load.take(report(a=2.5, b=0.1), now=12.0)
    assert load.busy_share(worker("a", 2.5)) == 0.75
    assert load.busy_share(worker("b", 0.1)) is None


def test_a_new_life_starts_afresh() -> None:
    load = Load()
    load.take(report(a=5.0), now=0.0)
    load.take({"workers": [worker("a", 0.5, pid=6)]}, now=1.0)
    assert load.busy_share(worker("a", 0.5, pid=6)) is None


def test_rows_of_every_state() -> None:
    roles = [
        Role(name="coordinator", pid=1),
        Role(name="a", pid=5),
        Role(name="b", pid=7, again_at=3.0, restarts=2),
        Role(name="c", pid=8, given_up="too often"),
        Role(name="d", pid=9),
    ]
    workers = [
        worker("a", 1.0),
        worker("b", 1.0, state="suspect"),
        worker("by-hand", 0.0, state="loading", beat_age_s=None, resident_bytes=None, source=None),
    ]
    assert worker_rows(roles, {"workers": workers}, Load()) == [
        ("coordinator", "running", "1", "0", "", "", "", "", "", ""),
        ("a", "ready", "5", "0", "3", "4", "", "0.2 s", "2 MiB", "mapped"),
        ("b", "restarting", "7", "2", "3", "4", "", "0.2 s", "2 MiB", "mapped"),
        ("c", "given up", "8", "0", "", "", "", "", "", ""),
        ("d", "running", "9", "0", "", "", "", "", "", ""),
        ("by-hand", "loading", "5", "", "3", "4", "", "", "", ""),
    ]


def test_without_a_report_only_the_roles_are_known() -> None:
    assert worker_rows([Role(name="a", pid=5)], None, Load()) == [("a", "running", "5", "0", "", "", "", "", "", "")]


def shown_source(load: Load, one: dict[str, Any]) -> str:
    return worker_rows([], {"workers": [one]}, load)[0][-1]


def test_of_the_experts_that_a_worker_needed_lately_it_is_told_which_part_was_read() -> None:
    load = Load()
    rows = [
        worker("a", 1.0, calls=1, tiers=tiers(cache_hits=90, file_reads=10)),
        worker("a", 2.0, calls=2, tiers=tiers(cache_hits=91, file_reads=13)),
        worker("a", 2.0, calls=2, tiers=tiers(cache_hits=91, file_reads=13)),  # nothing was asked
        worker("a", 3.0, calls=3, tiers=tiers(cache_hits=991, file_reads=14)),
        worker("a", 4.0, calls=4, tiers=tiers(cache_hits=991, file_reads=14)),  # nobody looked: all was there
        worker("a", 1.0, calls=9, tiers=tiers(file_reads=1), pid=6),  # another life
    ]
    shown = []
    for second, row in enumerate(rows):
        load.take({"workers": [row]}, now=float(second))
        shown.append(shown_source(load, row))
    assert shown == ["mapped", "mapped (75%)", "mapped (75%)", "mapped (<1%)", "mapped (0%)", "mapped"]


def test_a_gpu_s_memory_reads_no_files() -> None:
    load = Load()
    for calls in (1, 2):
        row = worker("p", 1.0, calls=calls, source="vram", tiers={})
        load.take({"workers": [row]}, now=float(calls))
    assert shown_source(load, row) == "vram"


def test_a_lookahead_process_has_a_row_with_its_inputs_as_calls() -> None:
    row = {"name": "lookahead", "pid": 6, "state": "ready", "inputs": 70, "hints": 9, "busy_s": 0.5}
    load, later = Load(), {"beat_age_s": 0.25, "resident_bytes": 2**21}
    load.take({"workers": [], "lookahead": [row | later]}, now=1.0)
    found = {"workers": [], "lookahead": [row | later | {"busy_s": 0.75}]}
    load.take(found, now=2.0)
    assert worker_rows([Role(name="lookahead", pid=6)], found, load) == [
        ("lookahead", "ready", "6", "0", "", "70", "25%", "0.2 s", "2 MiB", "")
    ]
