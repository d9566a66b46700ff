"""Wherever experts' bytes come from an answer has the same bits, and nobody computes from bytes that are not there."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from clusters import PATIENT, LiveCluster, RealProcess, Status, Then, in_force, live_cluster, worker_of
from reference_answer import Reference
from split_models import split_model

from expert_worker.sources.choice import GIB
from protocol.errors import RequestError
from protocol.model import Model
from protocol.stock import Stock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ROW_BY_ROW = [*PATIENT, "--chunk", "1", "--beat-s", "0.1", "--canaries", "0"]
"""So that all entries of a message are of different experts, and nobody counts but the answer."""
TOKENS = 40
"""Few enough for pages to be looked at in every message: `mapped.ALERT_CALLS`."""
SHARE = 48
"""Experts of the demo model for each of two workers."""
ONE = 150_000
"""Bytes that a copy of one of them has room in, and two have not."""


def source(name: str, room: int | None = None) -> Sequence[str]:
    """Options of a worker; `room` is bytes."""
    return ["--source", name, *([] if room is None else ["--ram-gib", repr(room / GIB)])]


SOURCES: dict[str, tuple[Sequence[str], str]] = {
    "mapped": (source("mapped"), "mapped"),
    "copies-of-half": (source("copies", SHARE // 2 * ONE), "copies"),
    "arena": (source("arena"), "arena"),
    "shared": (source("shared"), "shared"),
    "slots": (source("direct", 1 << 30), "direct"),
    "slots-for-half": (source("direct", SHARE // 2 * ONE), "direct"),
    "slots-for-none": (source("direct", 0), "direct"),
}
"""Options, and what the status then says. That further budgets change no bit is told without a cluster, in
`tests/expert_worker/sources`."""
WHOLE = ("arena", "shared")
"""Copies of everything."""
PART = ("copies-of-half", "slots-for-half")


def looked_at(row: Status) -> int:
    """Of how many experts a worker says where they came from."""
    return sum(row["tiers"].get(name, 0) for name in ("copy_hits", "cache_hits", "file_reads"))


def all_counted(report: Status) -> bool:
    """Whether the workers' beats have come to what the coordinator has counted."""
    return all(looked_at(row) == row["entries"] > 0 for row in report["workers"])


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_and_budget_gives_the_same_bits_and_counts_all_experts(
    name: str, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    options, told = SOURCES[name]
    settings = {"coordinator_options": ROW_BY_ROW, "worker_options": options}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        answer = cluster.answer(prompt, TOKENS)
        report = cluster.wait_for(all_counted, within_s=10)
        assert cluster.stop() == [0, 0, 0]
    reference.check(answer)
    assert (answer.report["local_entries"], answer.report["replans"]) == (0, 0)
    for row in report["workers"]:
        tiers = row["tiers"]
        copies, others = tiers["copy_hits"], tiers["cache_hits"] + tiers["file_reads"]
        assert row["source"] == told
        if name in WHOLE:
            assert (others, tiers["copied_experts"]) == (0, 2 * SHARE if name == "shared" else SHARE)
        elif name in PART:
            assert others > 0
            assert 0 < tiers["copied_experts"] <= SHARE // 2 * 1.25
            assert copies > 0
        elif name == "slots":
            assert tiers["file_reads"] == tiers["copied_experts"] <= SHARE
        else:
            assert (copies, tiers["copied_experts"]) == (0, 0)
        assert tiers["fallbacks"] == 0 or name == "slots-for-none"
        assert tiers["shed_bytes"] == 0


@pytest.mark.parametrize("hints", [False, True])
def test_every_worker_may_have_another_source(
    hints: bool, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    names = ["mapped", "copies-of-half", "shared", "slots-for-half", "arena"]
    own_options = {number: SOURCES[name][0] for number, name in enumerate(names)}
    with live_cluster(
        demo_model, tmp_path, workers=len(names), own_options=own_options, coordinator_options=PATIENT
    ) as cluster:
        if hints:
            options = ["--connect", cluster.endpoint, "--model", str(demo_model), "--name", "lookahead"]
            cluster.start("lookahead", "expert_worker.lookahead.main", options)
            cluster.wait_for(lambda report: len(report["lookahead"]) == 1)
        answer = cluster.answer(prompt, 200)
        if hints:
            cluster.wait_for(lambda report: report["lookahead"][0]["hints"] > 0)
        assert set(cluster.stop()) == {0}
    reference.check(answer)
    assert (answer.report["local_entries"], answer.report["replans"]) == (0, 0)
    assert [row["source"] for row in answer.report["workers"]] == [SOURCES[name][1] for name in names]
    assert [row["calls"] > 0 for row in answer.report["workers"]] == [True] * len(names)


# --- loading that does not come to its end ------------------------------------------------------------------------


class HalfLoaded:
    """A worker that joins a cluster, and stops half-way through loading."""

    def __init__(self, cluster: LiveCluster, model: Path, name: str) -> None:
        self._cluster = cluster
        self._options = ["--connect", cluster.endpoint, "--model", str(model), "--name", "half", *SOURCES[name][0]]
        self._process: RealProcess | None = None

    @property
    def process(self) -> RealProcess:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        self._process = self._cluster.start("half", "half_loaded_worker", self._options)

    def has_stopped(self, report: Status) -> bool:
        return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("name", ["copies-of-half", "shared"])
def test_the_answer_goes_on_when_a_worker_is_killed_half_way_through_loading(
    name: str, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    own_options = {1: SOURCES[name][0]}
    with live_cluster(demo_model, tmp_path, workers=1, own_options=own_options, coordinator_options=PATIENT) as cluster:
        half = HalfLoaded(cluster, demo_model, name)
        script = [
            Then(10, half.start),
            Then(half.has_stopped, lambda: half.process.kill()),
            Then(lambda report: in_force(report) == 1, lambda: cluster.workers.append(cluster.start_worker(1))),
            Then(lambda report: in_force(report) == 2 and worker_of(report, "worker-1")["calls"] > 0),
        ]
        answer = cluster.answer(prompt, 1900, script=script)
        assert worker_of(answer.report, "half")["calls"] == 0
    reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_who_waits_for_a_shared_arena_loads_what_its_owner_that_was_killed_has_not(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    own_options = dict.fromkeys((1, 2), SOURCES["shared"][0])
    with live_cluster(demo_model, tmp_path, workers=1, own_options=own_options, coordinator_options=PATIENT) as cluster:
        half = HalfLoaded(cluster, demo_model, "shared")

        def start_others() -> None:
            cluster.workers += [cluster.start_worker(number) for number in own_options]

        def others_wait(report: Status) -> bool:
            others = [row["state"] for row in report["workers"] if row["name"] != "half"]
            return sum(state in ("assigned", "loading") for state in others) == 2

        script = [
            Then(10, half.start),
            Then(half.has_stopped, start_others),
            Then(others_wait, lambda: half.process.kill()),
            Then(lambda report: in_force(report) == 3),
        ]
        reference.check(cluster.answer(prompt, 1900, script=script))
        with Model.open(demo_model) as model:
            whole = Stock.of(model.layout).bytes
        report = cluster.wait_for(
            lambda report: all(
                worker_of(report, f"worker-{n}")["tiers"].get("copied_bytes") == whole for n in own_options
            )
        )
        loaded = [worker_of(report, f"worker-{number}")["tiers"]["loaded_bytes"] for number in own_options]
    assert 0.4 * whole < sum(loaded) < 0.7 * whole  # the matrix in hand is loaded again, a twentieth
    assert min(loaded) == 0


def a_file_of_its_own(model: Path, folder: Path) -> Path:
    """Of the same name: that is part of what a coordinator compares."""
    own = folder / "own" / model.name
    own.parent.mkdir()
    own.write_bytes(model.read_bytes())
    return own


@pytest.mark.parametrize("name", ["arena", "shared"])
def test_a_file_that_shrinks_while_it_is_loaded_is_named_and_the_answer_goes_on(
    name: str, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    own = a_file_of_its_own(demo_model, tmp_path)
    with live_cluster(demo_model, tmp_path, workers=1, coordinator_options=PATIENT) as cluster:
        half = HalfLoaded(cluster, own, name)

        def shrink() -> None:
            os.truncate(own, 4096)
            half.process.thaw()

        script = [
            Then(10, half.start),
            Then(half.has_stopped, shrink),
            Then(lambda report: worker_of(report, "half")["state"] == "failed"),
        ]
        answer = cluster.answer(prompt, 1900, script=script)
        reference.check(answer)
        assert worker_of(answer.report, "half")["calls"] == 0
        reason = worker_of(cluster.status(), "half")["reason"]
        assert re.search(rf"layer \d, expert \d+: .*{re.escape(own.name)} changed while in use: its size was", reason)


# --- files that shrink while they are in use ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mapped", "copies-of-half", "slots-for-half", "slots-for-none", "arena", "shared"])
def test_when_everybodys_file_shrinks_an_answer_fails_by_expert_or_comes_from_copies(
    name: str, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    paths = split_model(demo_model, tmp_path / "model", 75)  # a tensor each: the dense weights stay whole
    with Model.open(paths[0]) as model:
        last = model.files.tensor(model.layout.layers[-1].down.tensor).file.path
    settings = {"coordinator_options": PATIENT, "worker_options": SOURCES[name][0]}
    shrink = Then(20, lambda: os.truncate(last, 4096))
    with live_cluster(paths[0], tmp_path, workers=2, **settings) as cluster:
        for tokens, script in ((220, [shrink]), (TOKENS, [])):
            if name in WHOLE:
                answer = cluster.answer(prompt, tokens, script=script)
                reference.check(answer)
                assert (answer.report["local_entries"], answer.report["replans"]) == (0, 0)
            else:
                with pytest.raises(
                    RequestError, match=rf"layer 5, expert \d+: .*{last.name} changed while in use: its size was"
                ):
                    cluster.answer(prompt, tokens, script=script)
            assert cluster.status()["state"] == "ready"
        assert cluster.stop() == [0, 0, 0]


@pytest.mark.parametrize("name", ["copies-of-half", "slots-for-half"])
def test_when_one_file_shrinks_the_answer_goes_on_from_another_holder(
    name: str, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    own = a_file_of_its_own(demo_model, tmp_path)
    settings = {"models": {1: own}, "coordinator_options": PATIENT, "worker_options": SOURCES[name][0]}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        answer = cluster.answer(prompt, 300, script=[Then(20, lambda: os.truncate(own, 4096))])
        reference.check(answer)
        assert answer.report["replans"] > 0
        assert f"{own.name} changed while in use: its size was" in cluster.logs()
        assert cluster.workers[1].exit_code() is None
