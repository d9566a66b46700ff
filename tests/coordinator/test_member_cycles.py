"""Hundreds of members come and go: the machine keeps nothing of them; no socket, no clock."""

from __future__ import annotations

import gc
import logging
import tracemalloc

import pytest
from bare_members import beat, join, make_ready, members, say, told

from coordinator.members import Members
from protocol.messages import Drained, Stopped

CYCLES = 200
KEPT = 5_000
"""Bytes that so many cycles may leave: numbers and tokens have become longer."""


def cycle(mesh: Members, life: int) -> None:
    """A worker joins, gets ready, beats, is drained and leaves; another one is lost while it loads."""
    member, _ = join(mesh, "b", str(life))
    make_ready(mesh)
    say(mesh, member, beat(member.token))
    mesh.drain(b"client", "b")
    make_ready(mesh)
    mesh.tick(0.0)
    assert [one.reason for one in told(say(mesh, member, Stopped()), Drained, b"client")] == [""]
    newcomer, _ = join(mesh, "c", str(life))
    mesh.unroutable(newcomer.control)
    assert mesh.assignment.ready


def test_nothing_is_kept_of_who_has_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "coordinator")  # what is told is kept by the test's own handler
    mesh = members(expected=1)
    join(mesh, "a")
    make_ready(mesh)
    for life in range(50):
        cycle(mesh, life)
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for life in range(50, 50 + CYCLES):
            cycle(mesh, life)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < KEPT
    assert len(mesh) == 1
    assert len(mesh.gone) == 2
