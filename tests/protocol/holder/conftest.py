"""What tests of a holder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from control_thread import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A control thread that has just started; it ends with the test."""
    worker = Worker()
    yield worker
    worker.bank.may_go_on.set()
    worker.control.finish()
    assert not worker.control._thread.is_alive()
