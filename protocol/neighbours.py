"""Where a coordinator's other connections are, told from where its control listens: nobody needs to be told more."""

from __future__ import annotations

from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError

MAX_LISTEN_PORT = 65532


def bulk_endpoint(control: str, *, dial: bool = False) -> str:
    """Where weights are given to workers that have no model file: the third port after it, or the name with `-bulk`.

    ConfigError if there is none. To `dial` it, `control` may have the name of a machine.
    """
    return beside(control, 3, "bulk", dial=dial)


def beside(control: str, ports: int, name: str, *, dial: bool = False) -> str:
    """So many ports after that of `control`, or its name with another ending. ConfigError if there is none."""
    control = check_endpoint(control, dial=dial, keyed=True)  # whether it may is for whoever listens
    if control.startswith("ipc://"):
        return check_endpoint(f"{control}-{name}")
    host, _, port = control.rpartition(":")
    if port in ("*", "0"):
        return control
    if int(port) > MAX_LISTEN_PORT:
        reason = (
            f"the next three ports are for work, layer inputs and weights, so {MAX_LISTEN_PORT} at most is expected"
        )
        raise ConfigError(f"endpoint {control!r}: {reason}")
    return f"{host}:{int(port) + ports}"
