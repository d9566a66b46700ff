"""A model larger than its container's memory is answered from all the same: nobody is killed, and no bit changes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from cgroups import ControlGroup, control_group, skip_unless_possible
from clusters import PATIENT, Answer, LiveCluster, Status, in_force, live_cluster
from moe_models import write_model
from page_cache import cached_bytes, drop_pages

from protocol.model import Model
from protocol.stock import Stock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MIB = 1 << 20
SHAPE: dict[str, Any] = {
    "layers": 8,
    "experts": 64,
    "experts_used": 4,
    "embd": 1024,
    "ff_exp": 1024,
    "heads": 8,
    "kv_heads": 2,
    "vocab": 300,
    "exp_type": "Q4_K",
    "dense_type": "Q8_0",
    "fill": "pool",
}
"""All but 14 MB of its 920 are experts."""
PROMPTS = [np.random.default_rng(seed).integers(0, 300, 48).tolist() for seed in range(2)]
"""Each has nearly every expert computed."""
TOKENS = 3
FULL = 0.95
"""Part of its limit that a group has come to have in use: with less, the limit has not been tried."""


class Big(NamedTuple):
    """A model, and what it says where there is memory enough."""

    path: Path
    expert_bytes: int
    answers: list[tuple[list[int], str]]
    """Ids and digest of the logits, by prompt."""

    def check(self, prompt: int, answer: Answer) -> None:
        assert (answer.ids, answer.sha256_logits) == self.answers[prompt]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Big]:
    folder = tmp_path_factory.mktemp("big")
    skip_unless_possible()
    path = write_model(folder / "big.gguf", **SHAPE)
    try:
        with Model.open(path) as model:
            expert_bytes = Stock.of(model.layout).bytes
        with live_cluster(path, folder, workers=0) as cluster:
            told = [cluster.answer(prompt, TOKENS) for prompt in PROMPTS]
        drop_pages(path)
        if cached_bytes(path) > 0.01 * expert_bytes:
            pytest.skip(f"pages of {path} stay in memory: it is on no disk")
        yield Big(path, expert_bytes, [(answer.ids, answer.sha256_logits) for answer in told])
    finally:
        path.unlink()


@contextmanager
def boxed(big: Big, folder: Path, limit: int, *options: str) -> Iterator[tuple[LiveCluster, ControlGroup]]:
    """A coordinator and two workers in a group with so many bytes, the model's pages not in memory."""
    drop_pages(big.path)
    with control_group(memory=limit) as group:
        cluster = LiveCluster(
            big.path, folder, workers=2, coordinator_options=PATIENT, worker_options=options, group=group
        )
        try:
            yield cluster, group
            assert cluster.stop() == [0, 0, 0]
            assert group.oom_kills() == 0, cluster.logs()
        finally:
            cluster.close()
        assert not cluster.survivors(), cluster.survivors()


def tiers(report: Status, name: str) -> list[int]:
    """One counter of each worker."""
    return [row["tiers"].get(name, 0) for row in report["workers"]]


def check_answers(big: Big, cluster: LiveCluster, prompts: int = 1, *, by_workers: bool = True) -> None:
    """So many of the answers come, and are right."""
    for number, prompt in enumerate(PROMPTS[:prompts]):
        answer = cluster.answer(prompt, TOKENS)
        big.check(number, answer)
        assert (answer.report["local_entries"] == 0) == by_workers


@pytest.mark.parametrize("source", ["mapped", "copies", "direct"])
def test_sixty_percent_of_the_experts_are_memory_enough(source: str, big: Big, tmp_path: Path) -> None:
    limit = int(0.6 * big.expert_bytes)
    with boxed(big, tmp_path, limit, "--source", source) as (cluster, group):
        cluster.ready()
        if source == "direct":  # which leaves pages alone, so somebody else in the container reads files
            reading = group.start(["head", "-c", str(limit), big.path], stdout=subprocess.DEVNULL)
            assert reading.wait(timeout=60) == 0
        check_answers(big, cluster, len(PROMPTS))
        report = cluster.wait_for(lambda report: min(tiers(report, "file_reads")) > 0)
        assert group.peak() >= FULL * limit
        copied = tiers(report, "copied_bytes")
        assert (max(copied) > 0) == (source != "mapped")  # who plans first may leave nothing
        assert sum(copied) < limit


def test_a_shared_arena_that_does_not_fit_is_replaced_by_copies(big: Big, tmp_path: Path) -> None:
    limit = int(0.6 * big.expert_bytes)
    with boxed(big, tmp_path, limit, "--source", "shared") as (cluster, group):
        cluster.ready()
        for worker in cluster.workers:
            assert "copies of this process's own instead of a shared arena: /dev/shm/" in worker.log.read_text()
        check_answers(big, cluster)
        report = cluster.wait_for(lambda report: max(tiers(report, "copied_bytes")) > 0)
        assert [row["source"] for row in report["workers"]] == ["copies", "copies"]
        assert group.peak() >= FULL * limit


def test_an_arena_that_does_not_fit_is_refused_and_answers_come_without_it(big: Big, tmp_path: Path) -> None:
    limit = int(0.6 * big.expert_bytes)

    def refused(report: Status) -> bool:
        return [row["state"] for row in report["workers"]] == ["failed", "failed"]

    with boxed(big, tmp_path, limit, "--source", "arena") as (cluster, group):
        for row in cluster.wait_for(refused)["workers"]:
            assert "cannot hold its experts: copies of all experts take 0." in row["reason"]
            assert "are left for them" in row["reason"]
        check_answers(big, cluster, by_workers=False)
        assert group.peak() >= FULL * limit


def anonymous(group: ControlGroup) -> int:
    """Bytes in use that the kernel cannot have back."""
    stat = dict(line.split() for line in (group.memory / "memory.stat").read_text().splitlines())
    names = ("total_rss", "total_shmem") if group.first else ("anon", "shmem", "kernel")
    return sum(int(stat[name]) for name in names)


def test_copies_are_given_up_when_the_limit_falls(big: Big, tmp_path: Path) -> None:
    """Again and again, to what is in use and a bit: much less than a worker wants to see free."""
    with boxed(big, tmp_path, int(1.5 * big.expert_bytes), "--source", "copies") as (cluster, group):
        cluster.ready()
        cluster.wait_for(lambda report: sum(tiers(report, "copied_bytes")) >= big.expert_bytes)
        check_answers(big, cluster, len(PROMPTS))
        for _ in range(3):
            shed = sum(tiers(cluster.status(), "shed_bytes"))
            group.set_limit(anonymous(group) + 32 * MIB)
            report = cluster.wait_for(lambda report: sum(tiers(report, "shed_bytes")) > shed)  # noqa: B023
            check_answers(big, cluster)
        assert in_force(report) == 2
        assert "the memory limit fell from" in cluster.logs()
        assert sum(tiers(cluster.status(), "copied_bytes")) < big.expert_bytes - 64 * MIB


def test_two_that_start_together_do_not_plan_the_same_bytes(big: Big, tmp_path: Path) -> None:
    """In a group with room for one and a half of them."""
    whole = big.expert_bytes // 2
    limit = whole * 3 // 2 + 240 * MIB  # what three processes take, and what is to stay free
    with boxed(big, tmp_path, limit, "--source", "copies") as (cluster, group):
        cluster.ready()
        report = cluster.wait_for(lambda report: max(tiers(report, "copied_bytes")) >= whole)
        less = min(tiers(report, "copied_bytes"))
        assert 0.2 * whole < less < 0.8 * whole
        check_answers(big, cluster)
        assert group.peak() >= FULL * limit
