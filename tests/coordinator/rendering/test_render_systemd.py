"""Units: their own checker has nothing to say of them, and their words are those of the launcher."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rendered import fetching_cluster, full_cluster

from coordinator.launch_plan import NO_LOOKAHEAD, LaunchPlan
from coordinator.rendering.parts import supervised
from coordinator.rendering.systemd import quoted, units
from protocol.errors import ConfigError


def plan_of(python: str = sys.executable) -> LaunchPlan:
    return supervised(full_cluster(), python=python, lookahead=NO_LOOKAHEAD)


def test_each_process_has_a_service_and_the_target_wants_all() -> None:
    files = units("home", plan_of().processes, user="nobody")
    target, coordinator, *others = files
    assert target == "expertmesh-home.target"
    assert coordinator == "expertmesh-home-coordinator.service"
    assert others == [f"expertmesh-home-{name}.service" for name in ("box-0", "box-1", "far-1-0", "gpu")]
    assert f"Wants={coordinator} {' '.join(others)}\n" in files[target]
    for name in others:
        assert f"After=network-online.target {coordinator}\n" in files[name]
        assert f"PartOf={target}\n" in files[name]
    assert 'coordinator.main --model "/data/a model.gguf" --listen' in files[coordinator]


def test_whoever_a_coordinator_has_told_to_end_comes_again() -> None:
    plan = supervised(fetching_cluster(give="tcp://127.0.0.1:7700"), python="py", lookahead=NO_LOOKAHEAD)
    files = units("home", plan.processes, user="nobody")
    again = {
        name.removeprefix("expertmesh-home-").removesuffix(".service"): [
            line.partition("=")[2] for line in text.splitlines() if line.startswith("Restart")
        ]
        for name, text in files.items()
        if name.endswith(".service")
    }
    assert again.pop("coordinator") == ["on-failure", "1", "2"]
    assert again.pop("attic-weights") == ["always", "1", ""], "it waits for what gives beside the coordinator, and ends"
    assert set(again) == {"weights", "box-0", "box-1", "far-1-0", "attic-0", "attic-1", "gpu"}
    assert all(stated == ["always", "1", "2"] for stated in again.values())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_its_own_checker_finds_nothing(tmp_path: Path) -> None:
    odd = replace(plan_of().processes[1], name="odd", command=(sys.executable, '50% "of" $HOME \\n', "é"))
    plan = supervised(
        fetching_cluster(give="tcp://127.0.0.1:7700"), python=sys.executable, lookahead=NO_LOOKAHEAD
    ).processes
    files = units("home", [*plan, odd], user="root")
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def verified() -> str:
        command = ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in files)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr

    assert verified() == ""
    wrong = tmp_path / "expertmesh-home-odd.service"
    wrong.write_text(files[wrong.name].replace("Restart=always", "Restart=at-times"))
    assert "at-times" in verified()


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("--model=/a/b.gguf", "--model=/a/b.gguf"),
        ("a b", '"a b"'),
        ('"', '"\\""'),
        ("\\", '"\\\\"'),
        ("50%", '"50%%"'),
        ("$HOME", '"$$HOME"'),
        ("", '""'),
        ("é", '"é"'),
    ],
)
def test_words_mean_themselves(word: str, text: str) -> None:
    assert quoted(word) == text


def test_a_line_break_has_no_place_in_a_unit() -> None:
    with pytest.raises(ConfigError, match=r"'a\\nb': a unit of systemd has no place for letters"):
        quoted("a\nb")
