"""An expert worker: `python -P -m expert_worker.main --connect ENDPOINT --model FILE`, or `--cache DIR`.

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
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from expert_worker.hinted import Hinted
from expert_worker.opening import memory_share, open_bank
from expert_worker.siblings import ALONE, Siblings, siblings_argument
from expert_worker.sources.choice import Asked
from expert_worker.supply import Supply
from expert_worker.weights.joining import fetched_model, supply_of
from protocol.arguments import number
from protocol.expert_sources import SOURCES
from protocol.gib import GIB, gib_argument
from protocol.holder import process
from protocol.holder.kernel_trial import kernel_trial
from protocol.keys import dial_keys
from protocol.messages import MAX_THREADS
from protocol.model import Model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until it leaves; returns the exit code."""
    parser = process.parser("expert_worker", "Hold experts and compute them.", needs_model=False)
    parser.add_argument("--cache", type=Path, metavar="DIR", help="fetch the weights into this folder, without a model")
    threads = number(int, 1, MAX_THREADS)
    parser.add_argument("--threads", type=threads, default=1, metavar="N", help="threads of the kernels")
    parser.add_argument("--source", choices=SOURCES, default="auto", help="where experts' bytes come from")
    parser.add_argument(
        "--ram-gib", type=gib_argument, metavar="N", help="memory for copies of experts, in GiB, or auto"
    )
    parser.add_argument("--headroom-gib", type=gib_argument, metavar="N", help="GiB left to everything else, or auto")
    parser.add_argument("--of", metavar="N/M", help="N of the cluster's M workers are started alike on this machine")
    options = parser.parse_args(arguments)
    if (options.model is None) == (options.cache is None):
        parser.error("either --model FILE or --cache DIR is expected")
    asked = Asked(source=options.source, ram=_bytes(options.ram_gib), headroom=_bytes(options.headroom_gib))
    try:
        siblings = siblings_argument(options.of, options.connect) if options.of else ALONE
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --of: {error}")
    if options.cache is None:
        return process.run(options, lambda model: _holder(model, options.threads, asked, siblings))
    return process.run(
        options,
        lambda model: _holder(
            model, options.threads, asked, siblings, supply_of(model, options.connect, dial_keys(options.keys))
        ),
        lambda: fetched_model(options.connect, options.cache, options.orphan_s, dial_keys(options.keys)),
    )


@contextmanager
def _holder(
    model: Model, threads: int, asked: Asked, siblings: Siblings, supply: Supply | None = None
) -> Iterator[process.Holder]:
    entry_ns, memory = kernel_trial(model.layout, threads), memory_share(model, asked, siblings)
    with open_bank(model, threads, asked, siblings, supply) as (bank, pages), Hinted(bank, model.geometry) as hinted:
        yield process.Holder(
            experts=bank,
            role="worker",
            isa=native.isa(),
            threads=threads,
            room=-1,
            pages=pages,
            entry_ns=entry_ns,
            memory=memory,
            joined=hinted.joined,
        )


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * GIB)


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(
        code
    )  # threads may be in native code still, from which they must not come back to an interpreter that ends
