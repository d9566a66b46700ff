"""Which lines of processes are shown to who waits for an answer."""

from __future__ import annotations

from string import ascii_lowercase

import pytest

from coordinator.cli.heard_warnings import MOST, WIDTH, HeardWarnings

STAMP = "2026-11-30 10:00:00,123"


def heard(*lines: tuple[str, str]) -> HeardWarnings:
    warnings = HeardWarnings()
    for name, line in lines:
        warnings.on_line(name, line)
    return warnings


def test_a_warning_is_shown_once_by_who_said_it_first() -> None:
    warnings = heard(("w-0", f"{STAMP} WARNING no room"), ("w-1", f"{STAMP} WARNING no room"))
    warnings.on_line("w-1", f"{STAMP} ERROR another")
    assert warnings.news() == ["w-0: no room", "w-1: another"]
    warnings.on_line("w-0", f"{STAMP} WARNING no room")
    assert warnings.news() == []


def test_another_number_is_nothing_new() -> None:
    warnings = heard(("w-0", f"{STAMP} WARNING layer 1: 2.51 GiB"), ("w-1", f"{STAMP} WARNING layer 12: 3 GiB"))
    assert warnings.news() == ["w-0: layer 1: 2.51 GiB"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("w-0", f"{STAMP} INFO a WARNING of nothing"),
        ("w-0", "error: it ended"),
        ("w-0", ""),
        ("coordinator", f"{STAMP} WARNING worker w-0 is gone"),
    ],
)
def test_other_lines_are_not(name: str, line: str) -> None:
    assert heard((name, line)).news() == []


def test_they_are_short_and_few() -> None:
    warnings = heard(*[("w", f"{STAMP} WARNING {letter} {'x' * WIDTH}") for letter in ascii_lowercase])
    lines = warnings.news()
    assert len(lines) == MOST + 1
    assert lines[0].startswith("w: a xxx")
    assert lines[0].endswith("x…")
    assert len(lines[0]) == len("w: ") + WIDTH
    assert lines[-1] == "further warnings are not shown"
    warnings.on_line("w", f"{STAMP} WARNING new")
    assert warnings.news() == []
