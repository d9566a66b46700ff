"""What of a cluster file every form is made of."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from rendered import CACHE, PYTHON, fetching_cluster, full_cluster

from coordinator.config import MAX_ORPHAN_S
from coordinator.rendering.parts import (
    COME_S,
    cluster_name,
    dns_name,
    option_of,
    parts,
    with_models_in,
    with_option,
)
from protocol.errors import ConfigError


def test_parts_are_what_the_launcher_would_start() -> None:
    made = parts(full_cluster(), python=PYTHON)
    assert [(part.name, part.kind, part.count, part.threads, part.gpus) for part in made] == [
        ("coordinator", "coordinator", 1, 4, 0),
        ("box", "worker", 2, 2, 0),
        ("Far_1", "worker", 1, 3, 0),
        ("gpu", "peer", 1, 1, 1),
        ("lookahead", "lookahead", 1, 1, 0),
    ]
    assert {part.command[:3] for part in made} == {(PYTHON, "-P", "-m")}
    coordinator, box, *_ = (part.command for part in made)
    assert coordinator[coordinator.index("--workers") + 1] == "4"
    assert box[box.index("--name") + 1] == "box-0"


def test_weights_are_given_beside_the_coordinator_and_from_caches() -> None:
    made = parts(fetching_cluster(give="tcp://127.0.0.1:7700"), python=PYTHON)
    assert [(part.name, part.kind) for part in made][:2] == [("coordinator", "coordinator"), ("weights", "weights")]
    assert [(part.name, part.kind, part.count) for part in made if part.cache == str(CACHE)] == [
        ("attic", "worker", 2),
        ("attic-weights", "giver", 1),
    ]
    assert [part.name for part in parts(full_cluster(bulk=True), python=PYTHON)][1] == "weights"


@pytest.mark.parametrize(("orphan_s", "waits"), [(None, MAX_ORPHAN_S), (7, 7)])
def test_nobody_is_waited_for_long_and_all_wait_for_the_coordinator(orphan_s: int | None, waits: int) -> None:
    """Any may be started first, or again: who starts them knows when to end them."""
    coordinator, *others = parts(full_cluster(orphan_s=orphan_s), python=PYTHON)
    assert option_of(coordinator.command, "--resume") == str(COME_S)
    assert {option_of(part.command, "--orphan-s") for part in others} == {str(waits)}


def test_models_in_another_folder_keep_their_names() -> None:
    moved = with_models_in(full_cluster(), PurePosixPath("/models"))
    assert str(moved.model) == "/models/a model.gguf"
    assert [str(group.model_path) for group in moved.workers] == ["None", "/models/m.gguf", "None"]


def test_an_option_is_replaced_or_taken_out() -> None:
    command = ("run", "--of", "2/2", "--name", "a")
    assert with_option(command, "--of", None) == ("run", "--name", "a")
    assert with_option(command, "--name", "b") == ("run", "--of", "2/2", "--name", "b")
    assert with_option(command, "--keys", "k") == command


@pytest.mark.parametrize(("text", "name"), [("Far_1", "far-1"), ("a..b-", "a-b"), ("x" * 50, "x" * 40), ("___", "")])
def test_names_have_the_letters_of_machines(text: str, name: str) -> None:
    assert dns_name(text) == name


def test_a_cluster_is_called_what_its_file_is() -> None:
    assert cluster_name(Path("/etc/My Cluster.toml")) == "my-cluster"
    with pytest.raises(ConfigError, match="a file name with letters or digits is expected"):
        cluster_name(Path("/etc/+.toml"))
