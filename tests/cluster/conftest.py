"""What tests with real processes share: a prompt, and what its answer must be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from reference_answer import PROMPT, Reference, reference_for


@pytest.fixture(scope="session")
def prompt() -> list[int]:
    return PROMPT


@pytest.fixture(scope="session")
def reference(demo_model: Path) -> Iterator[Reference]:
    """Of the demo model."""
    with reference_for(demo_model) as reference:
        yield reference
