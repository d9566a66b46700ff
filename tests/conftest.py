"""What tests of every folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import moe_models
import pytest
from hypothesis import settings
from worker_process import ScriptedCoordinator, Start, holders_of, write_model

# Machines of any speed and load run these tests: an example that takes long is no failure.
settings.register_profile("expertmesh", deadline=None)
settings.load_profile("expertmesh")

DEMO_MODEL = Path(__file__).parents[1] / "configs" / "demo-moe-q4_k_m.gguf"


@pytest.fixture(scope="session", autouse=True)
def state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What programs keep of their runs goes to a folder of this session, not to the account's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def mini_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the file of a model of tests/data/mini.json by its name, written once in a session."""
    folder = tmp_path_factory.mktemp("mini-models")
    return lambda name: moe_models.mini_model(name, folder)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four layers in Q8_0, of a few megabytes."""
    return moe_models.tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture
def coordinator() -> Iterator[ScriptedCoordinator]:
    """A coordinator over real sockets that says what a test has it say, for processes that hold experts."""
    with ScriptedCoordinator.listening() as coordinator:
        yield coordinator


@pytest.fixture(scope="session")
def holder_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model for processes that hold experts, whose shape is in `worker_process`."""
    return write_model(tmp_path_factory.mktemp("holder-model"))


@pytest.fixture
def start_worker(coordinator: ScriptedCoordinator, holder_model: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts workers for that coordinator; they are killed at the end."""
    with holders_of(coordinator, holder_model, tmp_path, "expert_worker.main") as start:
        yield start


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The trained model that comes with the project."""
    return DEMO_MODEL
