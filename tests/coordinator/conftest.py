"""What tests of the coordinator share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import small_models


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the file of one of `small_models.MODELS` by its name, written once in a session."""
    folder = tmp_path_factory.mktemp("small-models")
    return lambda name: small_models.small_model(name, folder)
