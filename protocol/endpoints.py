"""Where processes may listen and dial: this machine only, as long as nothing on the wire is encrypted."""

from __future__ import annotations

import ipaddress
import re

from protocol.errors import ConfigError

_IPC = re.compile(r"ipc://@[!-~]{1,100}")
_TCP = re.compile(r"tcp://(?P<host>\[[^]]+\]|[^:/\s]+):(?P<port>\*|[0-9]{1,5})")

_HOW = (
    "expected tcp://127.0.0.1:PORT, tcp://localhost:PORT, tcp://[::1]:PORT or ipc://@NAME. Other addresses are not "
    "supported yet, because nothing on the wire is encrypted; to reach another machine, use a tunnel such as "
    "ssh -N -L PORT:127.0.0.1:PORT user@host, for control, work and layer inputs each, and the tunnel's local end"
)


def check_endpoint(endpoint: str, *, dial: bool = False) -> str:
    """The endpoint with `localhost` resolved. ConfigError, telling how to proceed, unless it is on this machine.

    Port `*` takes any free port; only whoever listens can have that, so `dial` refuses it.
    """
    if _IPC.fullmatch(endpoint):
        return endpoint
    match = _TCP.fullmatch(endpoint)
    if match is None or not _is_loopback(match["host"]):
        raise ConfigError(f"endpoint {endpoint!r}: {_HOW}")
    port = match["port"]
    if port == "*" or int(port) == 0:
        if dial:
            raise ConfigError(f"endpoint {endpoint!r}: a port from 1 to 65535 expected")
    elif int(port) > 65535:
        raise ConfigError(f"endpoint {endpoint!r}: port {port} found, at most 65535 expected")
    host = "127.0.0.1" if match["host"] == "localhost" else match["host"]
    return f"tcp://{host}:{port}"


def hints_endpoint(session: str) -> str:
    """Where the lookahead process of this machine publishes its hints to the workers of a session.

    ConfigError if no endpoint can have that name.
    """
    return check_endpoint(f"ipc://@expertmesh-hints-{session}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    bracketed = host.startswith("[")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback and bracketed == (address.version == 6)
