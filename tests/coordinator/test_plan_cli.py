"""`expertmesh plan` as a person meets it, with --simulate and without."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from clusters import live_cluster
from command_line import ROOT, run

from coordinator.cli.plan_of_file import FilePlan
from coordinator.config import ClusterConfig, WorkerGroup
from coordinator.own_costs import OwnCosts
from coordinator.simulation.scenario import Shape
from coordinator.simulation.stated import Tried, scaled
from protocol.model import Model

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
    asked = ["--simulate", "--workers", "0,1,3", "--tokens", 3, "--mishaps", 1, "--seed", 7, "--json"]
    asked += ["--hours", 0.001, "--rates", "killed=1000, joins=1000", "--back-s", 0.5]
    done = run("plan", cluster, *asked)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [one["workers"] for one in found["simulated"]] == [0, 1, 3]
    for one in found["simulated"]:
        assert one["tokens_per_s"] > 0
        assert set(one["parts_s"]) == {"dense", "sending", "calls", "kernels"}
        assert ("hours" in one) == (one["workers"] > 0)
        assert set(one["pauses_s"]) == (set() if not one["workers"] else {"killed", "frozen", "vanished", "joins"})
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


# --- without --simulate -----------------------------------------------------------------------------------------------


def test_a_file_tells_who_would_hold_what_how_long_a_token_takes_and_who_helps(cluster: Path) -> None:
    done = run("plan", cluster)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(re.fullmatch(r"a token is expected to take \S+ ms, \S+ tokens a second", line) for line in lines)
    assert "of whoever is the last one in a layer" in done.stdout
    for name in ("box-0", "box-1"):
        (row,) = [line for line in lines if line.startswith(name)]
        assert re.search(r"(yes|hardly): \S+ ms a token with it, \S+ ms without$", row)


def test_the_slow_one_of_a_file_gets_nothing_and_it_is_said_why(demo_model: Path) -> None:
    with Model.open(demo_model) as model:
        shape = Shape.of(model)
    calls = {"call_s": 6e-5, "answer_s": 6e-5, "apart_s": 5e-4}
    own = OwnCosts(layer_s=1e-3, layer_row_s=0.0, step_s=1e-3, step_row_s=0.0, entry_s=1e-3, **calls)
    groups = (WorkerGroup(name="fast", count=2, threads=8), WorkerGroup(name="slow", threads=1, source="copies"))
    config = ClusterConfig(model=demo_model, workers=groups)
    found = FilePlan.of(config, shape, Tried(own=own, entry_s={8: 1e-3, 1: 0.5}), cores=64).as_object()
    fast, other, slow = found["workers"]
    assert (fast["experts"], other["experts"], slow["experts"]) == (96, 96, 0)
    assert "left_out" in slow
    assert "left_out" not in fast
    assert slow["without_us"] == pytest.approx(found["outlook"]["token_us"], rel=0.01)
    assert fast["without_us"] > 1.2 * found["outlook"]["token_us"]
    assert sum(found["outlook"]["limits"].values()) == pytest.approx(found["outlook"]["token_us"], rel=0.01)


def test_a_cluster_that_is_up_is_asked(demo_model: Path, tmp_path: Path) -> None:
    with live_cluster(demo_model, tmp_path, workers=2) as running:
        done = run("plan", running.endpoint)
        told = json.loads(run("plan", running.endpoint, "--json").stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a token is expected to take" in done.stdout
    assert [worker["name"] for worker in told["workers"]] == ["worker-0", "worker-1"]
    assert all(worker["pace"]["entry_us"] > 0 for worker in told["workers"])
    assert told["outlook"]["token_us"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ipc://@nobody-is-there",), "nothing listens at ipc://@nobody-is-there: is this cluster up?"),
        (("ipc://@some-cluster", "--simulate"), "--simulate takes a cluster file, found ipc://@some-cluster"),
        (("nothing.toml", "--rates", "killed"), "--rates is killed, expected KIND=N with commas between, KIND one of"),
        (("nothing.toml", "--rates", "killed=1,joins=2,killed=3"), "--rates names killed twice"),
        (("nothing.toml",), "'CONFIG|ENDPOINT': nothing.toml: No such file or directory"),
        (("", "--simulate"), "'CONFIG|ENDPOINT': an empty path: No such file or directory"),
        (("{file}", "--workers", "1,2"), "--workers is of use with --simulate only"),
        (("{file}", "--seed", "0"), "--seed is of use with --simulate only"),
        (("{file}", "--keys", "{file}"), "--keys is of use with an endpoint only, found {file}"),
        (("ipc://@some-cluster", "--profile", "{file}"), "--profile is of use with a cluster file only"),
        (("ipc://@some-cluster", "--keys", "{file}"), "keys: {file}: no key file: "),
        (
            ("{file}", "--simulate", "--workers", "1", "--round-trip-ms", "10000"),
            "a shorter round trip or a faster line is expected",
        ),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: tuple[str, ...], said: str) -> None:
    file = ROOT / "configs" / "local-1.toml"
    done = run("plan", *(argument.format(file=file) for argument in arguments))
    assert done.returncode == 2
    assert said.format(file=file) in done.stderr
