"""Clusters over models in several files, in places with strange names, and on files that shrink under them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path

import pytest
from clusters import PATIENT, Then, live_cluster
from command_line import run
from reference_answer import Reference
from split_models import split_model

from protocol.errors import RequestError
from protocol.model import Model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

STRANGE = "Größe 模型 " + "x" * 150


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_split_model_gives_the_bits_of_the_whole_one(
    workers: int, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    folder = tmp_path / STRANGE
    paths = split_model(demo_model, folder, 5)
    with Model.open(folder) as model:
        assert any(len({role.file for role in layer.roles}) > 1 for layer in model.layout.layers)
    models = dict(enumerate(paths[:workers]))  # each is given another of the files
    with live_cluster(folder, tmp_path, workers=workers, models=models, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 200)
    reference.check(answer)
    assert (answer.report["local_entries"] == 0) == (workers > 0)


def last_expert_file(model: Path) -> Path:
    """The file with the last layer's experts."""
    with Model.open(model) as opened:
        return opened.files.tensor(opened.layout.layers[-1].down.tensor).file.path


def test_the_answer_goes_on_from_another_holder_when_a_workers_file_shrinks(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    paths = split_model(demo_model, tmp_path / "a", 4)
    copies = sorted(Path(shutil.copytree(tmp_path / "a", tmp_path / "b")).iterdir())
    with live_cluster(paths[0], tmp_path, workers=2, models={1: copies[0]}, coordinator_options=PATIENT) as cluster:
        shrunk = last_expert_file(copies[0])
        answer = cluster.answer(prompt, 300, script=[Then(20, lambda: os.truncate(shrunk, 4096))])
        reference.check(answer)
        assert answer.report["replans"] > 0
        assert "expert" in cluster.logs()
        assert f"{shrunk.name} changed while in use: its size was" in cluster.logs()


def test_the_answer_goes_on_when_the_coordinators_own_experts_are_gone(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    """Of a file that has nothing but experts: its dense weights are whole, and the workers have copies."""
    paths = split_model(demo_model, tmp_path / "a", 75)  # a tensor each
    copies = sorted(Path(shutil.copytree(tmp_path / "a", tmp_path / "b")).iterdir())
    with Model.open(paths[0]) as model:
        of_experts = [file.path for file in model.files.files if all("_exps" in name for name in file.tensors)]
    models = {0: copies[0], 1: copies[0]}
    with live_cluster(paths[0], tmp_path, workers=2, models=models, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 300, script=[Then(20, lambda: os.truncate(of_experts[0], 4096))])
    reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_links_are_found_by_the_names_that_they_have(demo_model: Path, prompt: list[int], tmp_path: Path) -> None:
    """As in the caches of download tools: the command line and a cluster file take them as they are."""
    (tmp_path / "links").mkdir()
    for number, path in enumerate(split_model(demo_model, tmp_path / "blobs", 3)):
        (tmp_path / "links" / path.name).symlink_to(path.rename(path.with_name(str(number))))
    (tmp_path / "c.toml").write_text(
        f'[model]\npath = "links"\n[coordinator]\nlisten = "ipc://@expertmesh-test-{secrets.token_hex(8)}"\n'
        '[[workers]]\nname = "w"\n'
    )
    ids = ",".join(map(str, prompt))
    told = [
        run("generate", "--json", "--max-tokens", 3, "--prompt-ids", ids, *more)
        for more in (["--model", tmp_path / "links", "--workers", 1], ["--config", tmp_path / "c.toml"], [])
    ]
    assert [done.returncode for done in told] == [0, 0, 0], told
    assert len({json.loads(done.stdout)["sha256_logits"] for done in told}) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_an_answer_fails_by_expert_when_everybodys_file_shrinks(
    workers: int, demo_model: Path, prompt: list[int], tmp_path: Path
) -> None:
    path = split_model(demo_model, tmp_path / "model", 4)[0]
    shrunk = last_expert_file(path)
    with live_cluster(path, tmp_path, workers=workers, coordinator_options=PATIENT) as cluster:
        with pytest.raises(
            RequestError, match=rf"layer [45], expert \d+: .*{shrunk.name} changed while in use: its size"
        ):
            cluster.answer(prompt, 300, script=[Then(20, lambda: os.truncate(shrunk, 4096))])
        assert cluster.status()["state"] == "ready"
