"""A real expert worker that dials through relays, as EXPERTMESH_TEST_ROUTES says: "HOST:PORT=HOST:PORT ...".

Where it would dial the first, it dials the second. With EXPERTMESH_TEST_HOST it says that it is on that machine, and so
shares no memory with the others. Otherwise this is `expert_worker.main`.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import expert_worker.main
from expert_worker import opening
from protocol.holder import process
from protocol.wire import Dialled

HOST = os.environ.get("EXPERTMESH_TEST_HOST", "")
ROUTES = dict(pair.split("=") for pair in os.environ.get("EXPERTMESH_TEST_ROUTES", "").split())


class FarLine(Dialled):
    """A connection that goes another way than its endpoint says."""

    def __init__(self, endpoint: str, *others: Any, **more: Any) -> None:
        address = endpoint.removeprefix("tcp://")
        super().__init__(f"tcp://{ROUTES.get(address, address)}", *others, **more)


if __name__ == "__main__":
    if HOST:
        vars(socket)["gethostname"] = lambda: HOST
        vars(opening)["pages_of"] = lambda model: f"{HOST}'s"
    vars(process)["Dialled"] = FarLine
    sys.exit(expert_worker.main.main())
