"""A peer GPU: `python -P -m peer_gpu.main --connect ENDPOINT --model FILE --device cuda:0 --vram-gib auto`.

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

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from native import cuda
from peer_gpu.runner import SlotRunner
from peer_gpu.slots import ExpertSlots, room_on, warn_if_none_fits
from peer_gpu.trial import slot_trial
from protocol.errors import ConfigError
from protocol.gib import GIB, gib_argument
from protocol.holder import process
from protocol.model import Model

log = logging.getLogger(__name__)

MAX_ISA = 64
"""Characters of a device's description that a Hello may have."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a peer until it leaves; returns the exit code."""
    parser = process.parser("peer_gpu", "Hold experts in a GPU's memory and compute them there.")
    parser.add_argument("--device", default="cuda:0", metavar="NAME", help="which GPU: cuda:0, cuda:1 and so on")
    parser.add_argument(
        "--vram-gib",
        type=gib_argument,
        default=None,
        metavar="N",
        help="memory for experts, in GiB, or auto: what is free, less a reserve",
    )
    options = parser.parse_args(arguments)
    return process.run(options, lambda model: _holder(model, options.device, options.vram_gib))


@contextmanager
def _holder(model: Model, name: str, gib: float | None) -> Iterator[process.Holder]:
    try:
        slots, holder = _opened(model, name, gib)
    except cuda.DeviceError as error:
        raise ConfigError(str(error)) from None
    with slots:
        yield holder


def _opened(model: Model, name: str, gib: float | None) -> tuple[ExpertSlots, process.Holder]:
    if name == "cpu":
        raise ConfigError("device 'cpu': a GPU is expected, such as cuda:0; workers are what computes on processors")
    device = cuda.open_device(name)
    device.use()
    slots = ExpertSlots(device, model, 0)
    runner = SlotRunner(device, slots)
    slots.limit = room_on(device, gib, model.layout)  # of what is free when everything else is there
    log.info("%s: %s, room for %.4g GiB of experts", name, device.description, slots.limit / GIB)
    warn_if_none_fits(device, slots.limit, model.layout)
    entry_ns = slot_trial(slots, runner)
    isa = "".join(filter(str.isprintable, device.description))[:MAX_ISA]
    holder = process.Holder(
        experts=runner, role="peer", isa=isa, threads=1, room=slots.limit, pages="", entry_ns=entry_ns
    )
    return slots, holder


if __name__ == "__main__":
    sys.exit(main())
