"""A coordinator that counts which experts are used, and the next one, which gives a peer those that are used most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from clusters import PATIENT, live_cluster, worker_of
from reference_answer import Reference, reference_for
from small_models import small_model

from coordinator.profile_file import read_profile
from peer_gpu.slots import GIB
from protocol.model import Model
from protocol.stock import Stock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PROMPT = list(range(100, 110))
TOKENS = 20


@pytest.mark.parametrize("name", ["q8_0", "dense-first"])
def test_a_peer_computes_all_uses_of_the_experts_that_were_used_most(tmp_path: Path, name: str) -> None:
    model, path = small_model(name, tmp_path), tmp_path / "a.profile"
    with Model.open(model) as opened:
        room = Stock.of(opened.layout).bytes / 2 / GIB
    settings = {
        "peers": [0],
        "peer_options": ["--vram-gib", repr(room)],
        "coordinator_options": [*PATIENT, "--profile", str(path)],
    }
    reports = []
    for _ in range(2):
        with live_cluster(model, tmp_path, workers=2, **settings) as cluster:
            answer = cluster.answer(PROMPT, TOKENS)
            with reference_for(model, PROMPT, 255 - len(PROMPT)) as reference:
                reference.check(answer)
            reports.append(answer.report)
            assert cluster.stop() == [0, 0, 0]
        if len(reports) == 1:
            once = read_profile(path)
    np.testing.assert_array_equal(read_profile(path).counts, 2 * once.counts)
    assert once.rows == len(PROMPT) + TOKENS - 1
    first, second = (worker_of(report, "peer-0") for report in reports)
    assert first["experts"] == second["experts"]
    most = once.counts.ravel()[once.ranked()[: second["experts"]]]
    assert second["entries"] == most.sum() > first["entries"]


def test_the_state_tells_what_was_counted_and_a_killed_coordinator_leaves_what_it_saved(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    path = tmp_path / "a.profile"
    options = [*PATIENT, "--profile", str(path)]
    with live_cluster(demo_model, tmp_path, workers=1, coordinator_options=options) as cluster:
        assert cluster.status()["profile"] == {"rows": 0, "experts_90": 0}
        reference.check(cluster.answer(prompt, 200))
        told = cluster.status()["profile"]
        assert told["rows"] == len(prompt) + 199
        assert 0 < told["experts_90"] < 96
        cluster.coordinator.kill()
        found = read_profile(path)
        assert found.rows in (0, told["rows"])  # unless it took ten seconds to be killed nothing was saved yet
        cluster.restart_coordinator()
        assert cluster.ready()["profile"]["rows"] == found.rows


def test_without_a_file_nothing_is_told_of_a_profile(demo_model: Path, tmp_path: Path) -> None:
    with live_cluster(demo_model, tmp_path, workers=0, coordinator_options=PATIENT) as cluster:
        assert cluster.status()["profile"] is None
