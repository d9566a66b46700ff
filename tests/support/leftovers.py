"""What tests leave on this machine beside processes: files, shared memory, ports that somebody listens at."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import wait_until

WITHIN_S = 10.0


@contextmanager
def nothing_left(folder: Path, ports: Iterable[int]) -> Iterator[None]:
    """What is started within the block has the `folder` for temporary files, and leaves nothing, nor at the `ports`."""
    folder.mkdir()
    shared = shared_memory()

    def left() -> list[str]:
        return [
            *map(str, folder.iterdir()),
            *(shared_memory() - shared),
            *(f"port {port}" for port in ports if _is_taken(port)),
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield
    assert wait_until(lambda: not left(), WITHIN_S), left()


def shared_memory() -> set[str]:
    """Named memory that programs of this project may have left. The ledger is all of theirs, and stays where it is."""
    return {str(path) for path in Path("/dev/shm").glob("expertmesh-*") if path.suffix != ".ledger"}


def _is_taken(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False
