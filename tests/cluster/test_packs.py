"""Clusters over packs, shares and the model itself, in any mixture: the same bits, whoever dies."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import PATIENT, Then, in_force, live_cluster, worker_of
from command_line import run
from packs import pack_of, shares_of
from reference_answer import Reference, reference_for
from small_models import small_model

from protocol.errors import RequestError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

EXPERTS = 6 * 16
"""Of the demo model."""


@pytest.fixture(scope="module")
def pack(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_of(demo_model, tmp_path_factory.mktemp("pack") / "any-name.gguf")


@pytest.fixture(scope="module")
def halves(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return shares_of(demo_model, tmp_path_factory.mktemp("halves"), 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pack_gives_the_bits_of_the_model(
    workers: int, pack: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(pack, tmp_path, workers=workers, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 200)
    reference.check(answer)
    assert (answer.report["local_entries"] == 0) == (workers > 0)


def test_a_pack_of_every_type_in_a_cluster(
    mini_model: Callable[[str], Path], prompt: list[int], tmp_path: Path
) -> None:
    model = mini_model("q4_k")
    pack = pack_of(model, tmp_path / "p.gguf")
    with live_cluster(pack, tmp_path, workers=2, models={1: model}, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 60)
    with reference_for(model) as reference:
        reference.check(answer)


@pytest.mark.parametrize("packed_coordinator", [False, True])
def test_the_model_a_pack_and_a_share_in_one_cluster(
    packed_coordinator: bool,
    demo_model: Path,
    pack: Path,
    halves: list[Path],
    prompt: list[int],
    reference: Reference,
    tmp_path: Path,
) -> None:
    models = {0: demo_model, 1: pack, 2: halves[0]}
    whole = pack if packed_coordinator else demo_model
    with live_cluster(whole, tmp_path, workers=3, models=models, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 200)
    reference.check(answer)
    assert answer.report["local_entries"] == answer.report["replans"] == 0
    held = sorted(worker["experts"] for worker in answer.report["workers"])
    assert (sum(held), held[-1] - held[0] <= 6) == (EXPERTS, True)  # one a layer


def test_two_halves_are_all(
    demo_model: Path, halves: list[Path], prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    models = dict(enumerate(halves))
    with live_cluster(demo_model, tmp_path, workers=2, models=models, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 200)
    reference.check(answer)
    assert answer.report["local_entries"] == 0
    assert [worker["experts"] for worker in answer.report["workers"]] == [EXPERTS // 2] * 2


def test_what_is_in_no_share_is_the_coordinators(
    pack: Path, halves: list[Path], prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(pack, tmp_path, workers=1, models={0: halves[1]}, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 200)
        assert f"{EXPERTS // 2} experts with the coordinator's processor" in cluster.logs()
    reference.check(answer)
    assert answer.report["local_entries"] > 0
    assert [worker["experts"] for worker in answer.report["workers"]] == [EXPERTS // 2]


def test_when_a_share_dies_and_comes_back_nobody_is_given_what_it_has_not(
    demo_model: Path, halves: list[Path], prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    """Two workers with one half, one with the other: the loss of that one is the coordinator's to make good."""
    models = {0: halves[0], 1: halves[0], 2: halves[1]}
    with live_cluster(demo_model, tmp_path, workers=3, models=models, coordinator_options=PATIENT) as cluster:
        status = cluster.status()
        assert [worker_of(status, f"worker-{n}")["experts"] for n in range(3)] == [24, 24, 48]
        script = [
            Then(10, cluster.workers[2].kill),
            Then(lambda report: in_force(report) == 2),
            Then(60, cluster.workers[0].kill),
            Then(lambda report: in_force(report) == 1 and worker_of(report, "worker-1")["experts"] == 48),
            Then(lambda report: True, lambda: cluster.restart_worker(2)),
            Then(lambda report: in_force(report) == 2 and worker_of(report, "worker-2")["experts"] == 48),
        ]
        answer = cluster.answer(prompt, 1500, script=script)
        assert "not in this share" not in cluster.logs()
    reference.check(answer)
    assert answer.report["local_entries"] > 0


def test_peers_with_a_pack_and_a_share(tmp_path: Path) -> None:
    """The devices are emulated, so this is a small model and few tokens."""
    model, few = small_model("k", tmp_path), list(range(100, 105))
    pack, halves = pack_of(model, tmp_path / "p.gguf"), shares_of(model, tmp_path / "s", 2)
    settings = {"models": {0: pack, 1: halves[0], 2: halves[1]}, "peers": (0, 1), "coordinator_options": PATIENT}
    with live_cluster(model, tmp_path, workers=3, **settings) as cluster:
        answer = cluster.answer(few, 8)
    with reference_for(model, few, 100) as reference:
        reference.check(answer)
    assert answer.report["local_entries"] == 0
    assert all(worker["calls"] for worker in answer.report["workers"][:2])


def test_a_pack_that_shrinks_is_noticed(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    pack = pack_of(demo_model, tmp_path / "p.gguf")
    with live_cluster(demo_model, tmp_path, workers=2, models={1: pack}, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 300, script=[Then(20, lambda: os.truncate(pack, 1 << 20))])
        reference.check(answer)
        assert "p.gguf changed while in use: its size was" in cluster.logs()


def test_everything_fails_by_expert_when_the_only_pack_shrinks(
    demo_model: Path, prompt: list[int], tmp_path: Path
) -> None:
    pack = pack_of(demo_model, tmp_path / "p.gguf")
    with live_cluster(pack, tmp_path, workers=0, coordinator_options=PATIENT) as cluster:
        with pytest.raises(RequestError, match=r"p\.gguf changed while in use"):
            cluster.answer(prompt, 300, script=[Then(20, lambda: os.truncate(pack, 1 << 20))])
        assert cluster.status()["state"] == "ready"


def test_a_cluster_file_names_a_file_for_each_worker(
    demo_model: Path, pack: Path, halves: list[Path], tmp_path: Path
) -> None:
    workers = {"a": pack, "b": halves[0], "c": halves[1]}
    groups = "".join(f'[[workers]]\nname = "{name}"\nmodel_path = "{path}"\n' for name, path in workers.items())
    listen = f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
    text = f'[model]\npath = "{demo_model}"\n[coordinator]\nlisten = "{listen}"\n{groups}'
    (tmp_path / "c.toml").write_text(text)
    told = [
        run("generate", "--json", "--max-tokens", 3, *more, "In the beginning")
        for more in (["--config", tmp_path / "c.toml"], ["--model", demo_model, "--workers", 1])
    ]
    assert [done.returncode for done in told] == [0, 0], told
    mark = '"sha256_logits": "'
    assert len({done.stdout.partition(mark)[2][:64] for done in told}) == 1
    dry = run("up", "--dry-run", tmp_path / "c.toml")
    assert (dry.returncode, dry.stderr) == (0, "")


def test_a_coordinator_refuses_a_share(halves: list[Path]) -> None:
    refused = run("generate", "--model", halves[0], "--workers", 1, "x")
    assert refused.returncode == 2
    assert "share 1 of 2 of the experts of " in refused.stderr
    assert "the coordinator needs the whole model, or a whole pack of it" in refused.stderr
