"""A real expert worker that dials through relays, as EXPERTMESH_TEST_ROUTES says: "HOST:PORT=HOST:PORT ...".

Where it would dial the first, it dials the second. Otherwise this is `expert_worker.main`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import expert_worker.main
from protocol.holder import process
from protocol.wire import Dialled

ROUTES = dict(pair.split("=") for pair in os.environ.get("EXPERTMESH_TEST_ROUTES", "").split())


class FarLine(Dialled):
    """A connection that goes another way than its endpoint says."""

    def __init__(self, endpoint: str, *others: Any, **more: Any) -> None:
        address = endpoint.removeprefix("tcp://")
        super().__init__(f"tcp://{ROUTES.get(address, address)}", *others, **more)


if __name__ == "__main__":
    vars(process)["Dialled"] = FarLine
    sys.exit(expert_worker.main.main())
