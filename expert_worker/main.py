"""An expert worker: `python -P -m expert_worker.main --connect ENDPOINT --model FILE`.

What it has in common with every holder of experts, exit codes included, is in `protocol.holder.process`.
"""

from __future__ import annotations

from protocol.startup import first_of_all, refuse

try:
    import native
except ImportError as error:
    refuse(error)

if __name__ == "__main__":  # and only then load the rest
    first_of_all(native.die_with_parent)

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from expert_worker.bank import ExpertBank
from expert_worker.hinted import Hinted
from protocol.holder import process
from protocol.messages import MAX_THREADS
from protocol.model import Model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until it leaves; returns the exit code."""
    parser = process.parser("expert_worker", "Hold experts and compute them.")
    parser.add_argument("--threads", type=_thread_count, default=1, metavar="N", help="threads of the kernels")
    options = parser.parse_args(arguments)
    return process.run(options, lambda model: _bank(model, options.threads))


@contextmanager
def _bank(model: Model, threads: int) -> Iterator[process.Holder]:
    with ExpertBank(model, native.Pool(threads)) as bank, Hinted(bank, model.geometry) as hinted:
        yield process.Holder(
            experts=hinted, role="worker", isa=native.isa(), threads=threads, room=-1, joined=hinted.joined
        )


def _thread_count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{count} found, 1 to {MAX_THREADS} expected")
    return count


if __name__ == "__main__":
    sys.exit(main())
