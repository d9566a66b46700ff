"""What a machine tells of itself before anything is started there: `expertmesh hosted check`, over ssh."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coordinator.dialling import address_of, as_seen_here
from protocol.errors import ExpertmeshError
from protocol.host_memory import host_memory
from protocol.messages import PROTOCOL
from protocol.model import Model
from protocol.stock import Stock

DIAL_S = 5.0
"""Time for the launcher's machine to accept a connection, and again to say its word."""
MAX_WORD = 64
"""Bytes of it."""


def look_around(models: Iterable[Path], endpoints: Iterable[str], own: Iterable[str] = ()) -> dict[str, Any]:
    """All of it as JSON would have it: what runs here, what memory there is, each model, what each endpoint says.

    And why whoever is started here could not listen at those of its `own`; empty if it could.
    """
    memory = host_memory()
    return {
        "version": version("expertmesh"),
        "protocol": PROTOCOL,
        "available_bytes": None if memory.unknown else memory.available,
        "models": {str(path): _model(path) for path in models},
        "heard": {endpoint: _heard(endpoint) for endpoint in endpoints},
        "taken": {endpoint: _taken(endpoint) for endpoint in own},
    }


def _model(path: Path) -> dict[str, Any]:
    try:
        with Model.open(path) as model:
            return {"fingerprint": model.fingerprint, "expert_bytes": Stock.of(model.layout).bytes}
    except (ExpertmeshError, OSError) as error:
        return {"error": str(error)}


def _taken(endpoint: str) -> str:
    host, port = address_of(endpoint)
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return ""
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)


def _heard(endpoint: str) -> dict[str, Any]:
    """The first word of whoever listens at a tcp endpoint, seen from here."""
    dialled = as_seen_here(endpoint, os.environ.get("SSH_CONNECTION", ""))
    try:
        with socket.create_connection(address_of(dialled), timeout=DIAL_S) as connection:
            word = b""
            while len(word) < MAX_WORD and (more := connection.recv(MAX_WORD)):
                word += more
            return {"dialled": dialled, "word": word[:MAX_WORD].decode("ascii", "replace")}
    except TimeoutError:
        error = f"no answer within {DIAL_S:g} s"
    except (OSError, ValueError) as failure:
        error = (isinstance(failure, OSError) and failure.strerror) or str(failure)
    return {"dialled": dialled, "error": error}
