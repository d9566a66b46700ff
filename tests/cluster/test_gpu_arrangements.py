"""The clusters of tests/gpu, the richest of them, on the emulated device: experts in three kinds of places."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_clusters import ARRANGEMENTS, gpu_cluster
from reference_answer import reference_for
from small_models import small_model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PROMPT = list(range(100, 110))
TOKENS = 12
EMULATED = {"coordinator_module": "emulated_coordinator", "peer_module": "emulated_peer"}


def test_own_device_a_peer_and_workers(tmp_path: Path) -> None:
    model = small_model("q8_0", tmp_path)  # two layers of six experts, of which a row takes three
    arrangement = ARRANGEMENTS["a quarter in VRAM, a peer, two workers"]
    with gpu_cluster(model, tmp_path / "logs", arrangement, **EMULATED) as cluster:
        answer = cluster.live.answer(PROMPT, TOKENS)
    with reference_for(model, PROMPT, TOKENS) as reference:
        reference.check(answer)
    cluster.check_shares(answer, (len(PROMPT) + TOKENS - 1) * 2 * 3)
