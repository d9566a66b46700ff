"""What tests of the shared arena have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from small_arena import LAYOUT

from expert_worker.shared_arena import SharedArena


@pytest.fixture
def arena_folder() -> Iterator[Path]:
    """In memory, as the real one."""
    with TemporaryDirectory(dir="/dev/shm", prefix="expertmesh-test-") as name:
        yield Path(name)


@pytest.fixture
def open_arena(arena_folder: Path) -> Iterator[Callable[[], SharedArena]]:
    """Opens the arena once more; closed with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(SharedArena.open(LAYOUT, arena_folder))
