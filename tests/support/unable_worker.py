"""A real expert worker that cannot load what it is assigned, as EXPERTMESH_TEST_UNABLE says: it fails, or dies over it.

Otherwise this is `expert_worker.main`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import expert_worker.main
from expert_worker.bank import ExpertBank
from protocol.errors import ExpertError

LAYER = 2
"""Those before it are loaded."""

_really_prepare: Any = ExpertBank.prepare


def _prepare(self: ExpertBank, layer: int, experts: NDArray[np.integer[Any]]) -> Iterator[None]:
    if layer < LAYER:
        yield from _really_prepare(self, layer, experts)
    elif os.environ["EXPERTMESH_TEST_UNABLE"] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        raise ExpertError(layer, int(experts[0]), "the disk is broken")


if __name__ == "__main__":
    setattr(ExpertBank, "prepare", _prepare)  # noqa: B010 # which the type checker takes for a mistake
    sys.exit(expert_worker.main.main())
