"""What only one launcher of this machine may have at a time: a core for its workers, an endpoint for its cluster.

A lease is an abstract socket with the thing's name: only one process can have it, and the kernel takes it back when
that process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from coordinator.probe import somebody_listens
from protocol.endpoints import check_endpoint


def take_lease(name: str) -> socket.socket | None:
    """The lease of that name, to be closed when it is not needed any more; None if another process has it."""
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lease.bind(f"\0expertmesh-{name}")
    except OSError:
        lease.close()
        return None
    return lease


@contextmanager
def endpoints_leased(control: str, *others: str) -> Iterator[dict[str, str]]:
    """Within the block no other launcher starts a cluster at these; why not, for each that could not be had.

    Whoever has `control` has the others, too, so then nothing is said of these.

    A look at the port alone would not do: a coordinator that is starting, or starting again, does not listen yet, and
    the workers of two launchers would join whichever is there first.
    """
    with ExitStack() as leases:
        taken = {one: "" for one in (control, *others) if not _leased(one, leases)}
        if control in taken:
            taken[control] = f"{control} is in use already: is this cluster up?"
        else:
            for one in taken:
                taken[one] = f"{one}, which is needed beside {control}, is in use already: listen elsewhere"
        yield taken


def _leased(endpoint: str, leases: ExitStack) -> bool:
    """Whether the endpoint could be had, for as long as `leases` is open."""
    mark = hashlib.sha256(check_endpoint(endpoint, keyed=True).encode()).hexdigest()[:32]  # abstract names are short
    lease = take_lease(f"endpoint-{mark}")
    if lease is not None:
        leases.enter_context(lease)
    return lease is not None and not somebody_listens(endpoint)
