"""`expertmesh plan --simulate` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

from coordinator.config import WorkerGroup
from coordinator.simulation.stated import scaled

pytestmark = pytest.mark.timeout(120)

CLUSTER = """
[model]
path = "{model}"

[[workers]]
name = "box"
count = 2
threads = 1
"""


@pytest.fixture
def cluster(tmp_path: Path, demo_model: Path) -> Path:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.format(model=demo_model))
    return file


def test_several_numbers_of_workers_are_compared(cluster: Path) -> None:
    asked = ("--simulate", "--workers", "1,3", "--tokens", 3, "--mishaps", 1, "--seed", 7, "--json")
    done = run("plan", cluster, *asked)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [one["workers"] for one in found["simulated"]] == [1, 3]
    for one in found["simulated"]:
        assert one["tokens_per_s"] > 0
        assert set(one["parts_s"]) == {"dense", "sending", "calls", "kernels"}
        assert set(one["pauses_s"]) == {"killed", "frozen", "vanished", "joins"}
    assert found["network"] == {"round_trip_s": 0.0003, "bytes_per_s": 1.25e8}
    assert all(found["tried"][name] > 0 for name in ("layer_s", "step_s", "entry_s"))


def test_the_cluster_of_the_file_runs_here(cluster: Path) -> None:
    done = run("plan", cluster, "--simulate", "--tokens", 3, "--conversations", 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert "machines  this one, for all" in done.stdout
    [_, row] = [line.split() for line in done.stdout.splitlines() if line.startswith(("workers", "      2"))]
    assert row[0] == "2"
    assert "- with 2 workers, " in done.stdout


def test_a_profile_says_how_rows_are_routed(cluster: Path, demo_model: Path, tmp_path: Path) -> None:
    profile = tmp_path / "one.profile"
    run("profile", "record", demo_model, "-p", "import os", "--max-tokens", 3, "-o", profile)
    done = run("plan", cluster, "--simulate", "--tokens", 2, "--profile", profile)
    assert (done.returncode, done.stderr) == (0, "")
    assert "routing   as in the profile" in done.stdout


def test_workers_keep_their_proportions() -> None:
    groups = (WorkerGroup(name="a", count=3), WorkerGroup(name="b", count=1), WorkerGroup(name="c", count=0))
    assert [group.count for group in scaled(groups, 8)] == [6, 2, 0]
    assert [group.count for group in scaled(groups, 5)] == [4, 1, 0]
    assert sum(group.count for group in scaled(groups, 1)) == 1
    with pytest.raises(ValueError, match="no workers"):
        scaled((WorkerGroup(name="a", count=0),), 3)
