"""Where processes may listen and dial: this machine only, unless what is on the wire is encrypted."""

from __future__ import annotations

import ipaddress
import re

from protocol.errors import ConfigError

_IPC = re.compile(r"ipc://@[!-~]{1,100}")
_TCP = re.compile(r"tcp://(?P<host>\[[^]]+\]|[^:/\s]+):(?P<port>\*|[0-9]{1,5})")
_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*\.?")
_ANYWHERE = {"*": "0.0.0.0", "0.0.0.0": "0.0.0.0", "[::]": "[::]"}
"""Hosts that mean every address of this machine."""
_HERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Where that is dialled on this machine itself."""

_FORMS = "tcp://127.0.0.1:PORT, tcp://localhost:PORT, tcp://[::1]:PORT or ipc://@NAME"
_HOW = (
    f"expected {_FORMS}. Another address needs keys, without which nothing on the wire is encrypted: make them by "
    '`expertmesh keys new FOLDER`, and give them by --keys FOLDER, or by path = "FOLDER" under [keys] in the cluster '
    "file; on another machine, by --keys FILE"
)
_LISTEN = f"expected an address of this machine in numbers, such as tcp://0.0.0.0:PORT for all of them, or {_FORMS}"
_DIAL = f"expected tcp://HOST:PORT, or {_FORMS}"


def check_endpoint(endpoint: str, *, dial: bool = False, keyed: bool = False) -> str:
    """The endpoint with `localhost` resolved. ConfigError, telling how to proceed, unless it may be used.

    Without keys it must be on this machine. Port `*` takes any free port; only whoever listens can have that, so `dial`
    refuses it. To dial all addresses of a machine is to dial this one.
    """
    if _IPC.fullmatch(endpoint):
        return endpoint
    match = _TCP.fullmatch(endpoint)
    host = None if match is None else _host(match["host"], dial=dial, keyed=keyed)
    if match is None or host is None:
        raise ConfigError(f"endpoint {endpoint!r}: {(_DIAL if dial else _LISTEN) if keyed else _HOW}")
    port = match["port"]
    if port == "*" or int(port) == 0:
        if dial:
            raise ConfigError(f"endpoint {endpoint!r}: a port from 1 to 65535 expected")
    elif int(port) > 65535:
        raise ConfigError(f"endpoint {endpoint!r}: port {port} found, at most 65535 expected")
    return f"tcp://{host}:{port}"


def check_named(endpoint: str, *, keyed: bool = False) -> str:
    """As check_endpoint, of one who listens where others are told to dial: that cannot be all of his addresses."""
    match = _TCP.fullmatch(check_endpoint(endpoint, keyed=keyed))
    address = None if match is None else _address(match["host"])
    if address is not None and address.is_unspecified:
        raise ConfigError(
            f"endpoint {endpoint!r}: others are told to dial it, so one address of this machine is expected, not all"
        )
    return check_endpoint(endpoint, dial=True, keyed=keyed)


def is_local(endpoint: str) -> bool:
    """Whether only this machine can reach who listens there."""
    match = _TCP.fullmatch(endpoint)
    return match is None or _is_loopback(match["host"])


def as_dialled(dialled: str, named: str) -> str:
    """Where to dial an endpoint that whoever listens at `dialled` has `named`: its port, at the host we know him by.

    He may listen at all addresses of his machine, or be known by another one beyond a router.
    """
    ours, other = _TCP.fullmatch(dialled), _TCP.fullmatch(named)
    return named if ours is None or other is None else f"tcp://{ours['host']}:{other['port']}"


def hints_endpoint(session: str) -> str:
    """Where the lookahead process of this machine publishes its hints to the workers of a session.

    ConfigError if no endpoint can have that name.
    """
    return check_endpoint(f"ipc://@expertmesh-hints-{session}")


def _host(host: str, *, dial: bool, keyed: bool) -> str | None:
    """As libzmq takes it; None if it may not be used."""
    if host == "localhost":
        return "127.0.0.1"
    if _is_loopback(host):
        return host
    if not keyed:
        return None
    if host in _ANYWHERE:
        return _HERE[_ANYWHERE[host]] if dial else _ANYWHERE[host]
    if _address(host) is not None or (dial and _NAME.fullmatch(host) and not re.fullmatch(r"[0-9.]+", host)):
        return host
    return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in numbers, one of version 6 in brackets."""
    bracketed = host.startswith("[")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    return address if bracketed == (address.version == 6) else None
