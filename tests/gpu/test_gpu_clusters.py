"""Clusters with a GPU: one hash, whoever holds the experts, and whoever is killed in mid-answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_clusters import ARRANGEMENTS, Arrangement, gpu_cluster
from reference_answer import PROMPT, Reference, reference_for

from coordinator.sampling import Sampling

pytestmark = [pytest.mark.gpu, pytest.mark.cluster, pytest.mark.timeout(400), pytest.mark.usefixtures("device")]

ROOT = Path(__file__).parents[2]
TOKENS = 200
LAYERS, EXPERTS_OF_A_ROW = 6, 4
LONG = 1900
"""Tokens that an answer with a script may take at most."""
HASTY = ["--call-floor-ms", "300", "--beat-s", "0.2"]
SAMPLING = Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=7)


@pytest.fixture(scope="module")
def reference(demo_model: Path) -> Iterator[Reference]:
    """What the demo model answers without any mesh, on the processor."""
    with reference_for(demo_model) as reference:
        yield reference


@pytest.fixture(scope="module")
def sampled(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], str]:
    """Ids and digest of the sampled answer on the processor."""
    with gpu_cluster(demo_model, tmp_path_factory.mktemp("sampled"), Arrangement()) as cluster:
        answer = cluster.live.answer(PROMPT, TOKENS, sampling=SAMPLING)
    return answer.ids, answer.sha256_logits


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_one_hash_whoever_holds_the_experts(
    name: str, demo_model: Path, reference: Reference, sampled: tuple[list[int], str], tmp_path: Path
) -> None:
    with gpu_cluster(demo_model, tmp_path, ARRANGEMENTS[name]) as cluster:
        answer = cluster.live.answer(PROMPT, TOKENS)
        other = cluster.live.answer(PROMPT, TOKENS, sampling=SAMPLING)
    reference.check(answer)
    assert len(answer.ids) == TOKENS
    cluster.check_shares(answer, (len(PROMPT) + TOKENS - 1) * LAYERS * EXPERTS_OF_A_ROW)
    assert (other.ids, other.sha256_logits) == sampled
    assert other.ids != answer.ids


@pytest.mark.parametrize("name", ["half in VRAM, half on a peer", "a quarter in VRAM, a peer, two workers"])
def test_a_peer_killed_in_mid_answer(name: str, demo_model: Path, reference: Reference, tmp_path: Path) -> None:
    with gpu_cluster(demo_model, tmp_path, ARRANGEMENTS[name], options=HASTY) as cluster:
        answer = cluster.live.answer(PROMPT, LONG, script=cluster.killing(cluster.peers[0]))
    reference.check(answer)
    assert answer.report["device_entries"] > 0
    assert answer.report["local_entries"] > 0


@pytest.mark.parametrize("name", ["all on two workers", "half in VRAM, half on two workers"])
def test_a_worker_killed_in_mid_answer(name: str, demo_model: Path, reference: Reference, tmp_path: Path) -> None:
    with gpu_cluster(demo_model, tmp_path, ARRANGEMENTS[name], options=HASTY) as cluster:
        answer = cluster.live.answer(PROMPT, LONG, script=cluster.killing(cluster.live.workers[0]))
    reference.check(answer)


def test_seven_others_beside_it(demo_model: Path, reference: Reference, tmp_path: Path) -> None:
    others = [list(range(start, start + 5 * start)) for start in range(1, 8)]
    with gpu_cluster(demo_model, tmp_path, ARRANGEMENTS["half in VRAM, half on two workers"]) as cluster:
        answers = cluster.live.answers([*others[:4], PROMPT, *others[4:]], TOKENS)
    reference.check(answers[4])
    assert [len(answer.ids) for answer in answers] == [TOKENS] * 8


@pytest.mark.parametrize("name", ["bf16", "q8_0", "q4_0"])
def test_activations_of_other_weight_types(name: str, mini_model: Callable[[str], Path], tmp_path: Path) -> None:
    model = mini_model(name)
    with gpu_cluster(model, tmp_path, ARRANGEMENTS["a quarter in VRAM, a peer, two workers"]) as cluster:
        answer = cluster.live.answer(PROMPT, 60)
    with reference_for(model) as reference:
        reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_the_command_line_with_a_ready_file() -> None:
    """`expertmesh generate --config configs/gpu.toml`, which starts the cluster for this answer."""
    report = generated("--config", str(ROOT / "configs" / "gpu.toml"))
    assert report["sha256_logits"] == generated("--device", "cpu")["sha256_logits"]
    assert report["device"].startswith("cuda:0")
    assert report["device_entries"] > 0
    assert [worker["calls"] > 0 for worker in report["workers"]] == [True]
    assert report["local_entries"] == 0


def generated(*options: str) -> dict[str, Any]:
    """The report of an answer of 40 tokens."""
    command = [sys.executable, "-P", "-m", "coordinator.cli", "generate", "--json", "--max-tokens", "40", *options]
    done = subprocess.run([*command, "In the beginning"], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report
