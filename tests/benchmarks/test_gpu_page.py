"""The page of GPU results: sections come and go one by one."""

from __future__ import annotations

from datetime import UTC, datetime

import gpu_page
from gpu_page import Origin, Ran, of_tests, put, section, sections

ORIGIN = Origin(
    at=datetime(2026, 11, 30, 8, 5, tzinfo=UTC), commit="abc123", machine="NVIDIA X, driver 1", command="python x.py"
)
PYTEST = """\
....F
FAILED tests/gpu/test_a.py::test_b[x] - AssertionError: 1 == 2
SKIPPED [2] tests/gpu/test_c.py:3: no peer here
1 failed, 211 passed, 2 skipped in 63.41s (0:01:03)
"""


def ran(code: int | None = 0, output: str = "") -> Ran:
    return Ran(output=output, code=code, seconds=12.4)


def test_a_first_section_makes_the_page() -> None:
    page = put("", "Kernels", "| a |\n")
    assert page == f"{gpu_page.START}\n## Kernels\n\n| a |\n"


def test_sections_keep_their_order_and_what_is_not_measured_again_stays() -> None:
    page = ""
    for title in ("Clusters", "Something else", "Kernels", "Tests"):
        page = put(page, title, f"of {title}\n\n### below\n")
    page = put(page, "Kernels", "new")
    assert list(sections(page)) == ["Tests", "Kernels", "Clusters", "Something else"]
    assert sections(page)["Kernels"] == "new\n"
    assert sections(page)["Clusters"] == "of Clusters\n\n### below\n"
    assert put(page, "Kernels", "new") == page


def test_a_section_says_where_it_comes_from() -> None:
    text = section(ORIGIN, ran(), "| a |\n\n")
    assert text == "2026-11-30 08:05 UTC, commit abc123, NVIDIA X, driver 1:\n\n`python x.py`\n\n| a |\n"


def test_a_section_says_how_a_command_ended() -> None:
    assert section(ORIGIN, ran(3), "x").endswith("x\n\nThe command ended with 3.\n")
    late = section(ORIGIN, ran(None), "x")
    assert late.endswith("x\n\nThe command was ended after 12 s, when its time was over.\n")


def test_tests_are_counted_and_those_that_failed_are_named() -> None:
    text = of_tests(ran(1, PYTEST))
    assert text.splitlines()[0] == "1 failed, 211 passed, 2 skipped, in 63 s."
    assert "- `FAILED tests/gpu/test_a.py::test_b[x] - AssertionError: 1 == 2`" in text
    assert "- `SKIPPED [2] tests/gpu/test_c.py:3: no peer here`" in text
    assert of_tests(ran(0, "=== 5 passed in 0.20s ===")) == "5 passed, in 0 s.\n"


def test_tests_that_did_not_end_are_not_taken_for_good() -> None:
    assert of_tests(ran(None, "....")) == "No counts: it did not come to its end.\n"
