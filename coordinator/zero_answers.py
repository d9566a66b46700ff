"""A process that answers calls with zeros, to try what calls take: `zero_answers ENDPOINT WIDTH CALL_BYTES`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

import native
from coordinator.simulation.worker import zeros
from protocol.ending import exit_code
from protocol.endpoints import check_endpoint
from protocol.messages import OpenWork, RunExperts, Stop
from protocol.wire import Dialled, longest_work_frame

READ_BYTES = 64 << 20
"""Memory that is read piece by piece: more than most caches hold."""
SILENCE_S = 60.0


def serve(endpoint: str, width: int, call_bytes: int) -> None:
    """Until told to stop, or nothing comes for long."""
    memory = np.ones(max(READ_BYTES, call_bytes) // 8, np.uint64)
    words, start = min(len(memory), max(1, call_bytes // 8)), 0
    with Dialled(endpoint, max_frame_bytes=longest_work_frame(width)) as line:
        line.send(OpenWork(token="trial"))
        while (message := line.receive(SILENCE_S)) is not None and not isinstance(message, Stop):
            if isinstance(message, RunExperts):
                began = time.perf_counter()
                memory[start : start + words].sum()
                busy_us = int((time.perf_counter() - began) * 1e6)
                line.send(zeros(message, width, busy_us))
                start = start + words if start + 2 * words <= len(memory) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="zero_answers", description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("width", type=int)
    parser.add_argument("call_bytes", type=int)
    parser.add_argument("--parent", type=int, help="process that this one must not outlive")
    options = parser.parse_args(arguments)
    if options.parent is not None and not native.die_with_parent(options.parent):
        return 0
    endpoint = check_endpoint(options.endpoint, dial=True)
    return exit_code(lambda: serve(endpoint, options.width, options.call_bytes), "zero_answers")


if __name__ == "__main__":
    sys.exit(main())
