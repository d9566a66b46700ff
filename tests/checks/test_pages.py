"""The pages speak of files that exist, and the README of options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli.commands import COMMANDS, expertmesh

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("configs/*.md")])
PACKAGES = ("coordinator", "expert_worker", "peer_gpu", "protocol", "native", "configs", "tests", "docs")


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_files_that_are_named_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    named = re.findall(r"`([\w./-]+\.(?:py|pyi|cpp|h|toml|md))`", text)
    names = {path.name for package in PACKAGES for path in (ROOT / package).rglob("*.*")}
    names |= {path.name for path in ROOT.glob("*.*")}
    missing = [name for name in named if not _exists(name, names)]
    assert missing == []


def _exists(name: str, names: set[str]) -> bool:
    """A path from the root, or below one of the packages, or a bare name found anywhere."""
    if "/" not in name:
        return name in names
    return any((ROOT / package / name).exists() for package in ("", *PACKAGES))


def test_options_that_the_readme_shows_exist() -> None:
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", (ROOT / "README.md").read_text("utf-8")))
    runner = CliRunner()
    known = "".join(runner.invoke(expertmesh, [command, "--help"]).output for command in COMMANDS)
    assert {option for option in shown if option not in known} == set()
