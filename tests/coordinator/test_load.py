"""What the table of a running cluster says, from reports and roles as values."""

from __future__ import annotations

from typing import Any

from coordinator.cli.load import Load, worker_rows
from coordinator.supervisor import Role


def report(**busy: float) -> dict[str, Any]:
    return {"workers": [worker(name, busy_s) for name, busy_s in busy.items()]}


def worker(name: str, busy_s: float, state: str = "ready", **more: object) -> dict[str, Any]:
    facts = {"name": name, "pid": 5, "state": state, "experts": 3, "calls": 4, "busy_s": busy_s}
    return facts | {"beat_age_s": 0.25, "resident_bytes": 2**21} | more


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
        worker("by-hand", 0.0, state="assigning", beat_age_s=None, resident_bytes=None),
    ]
    assert worker_rows(roles, {"workers": workers}, Load()) == [
        ("coordinator", "running", "1", "0", "", "", "", "", ""),
        ("a", "ready", "5", "0", "3", "4", "", "0.2 s", "2 MiB"),
        ("b", "restarting", "7", "2", "3", "4", "", "0.2 s", "2 MiB"),
        ("c", "given up", "8", "0", "", "", "", "", ""),
        ("d", "running", "9", "0", "", "", "", "", ""),
        ("by-hand", "assigning", "5", "", "3", "4", "", "", ""),
    ]


def test_without_a_report_only_the_roles_are_known() -> None:
    assert worker_rows([Role(name="a", pid=5)], None, Load()) == [("a", "running", "5", "0", "", "", "", "", "")]


def test_a_lookahead_process_has_a_row_with_its_inputs_as_calls() -> None:
    row = {"name": "lookahead", "pid": 6, "inputs": 70, "hints": 9, "busy_s": 0.5}
    load, later = Load(), {"beat_age_s": 0.25, "resident_bytes": 2**21}
    load.take({"workers": [], "lookahead": [row | later]}, now=1.0)
    found = {"workers": [], "lookahead": [row | later | {"busy_s": 0.75}]}
    load.take(found, now=2.0)
    assert worker_rows([Role(name="lookahead", pid=6)], found, load) == [
        ("lookahead", "ready", "6", "0", "", "70", "25%", "0.2 s", "2 MiB")
    ]
