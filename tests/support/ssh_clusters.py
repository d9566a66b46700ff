"""Cluster files with workers that are started over ssh, and machines that are network namespaces."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND
from free_ports import three_ports
from running_up import CONFIGS
from ssh_server import SshServer

MODEL = CONFIGS / "demo-moe-q4_k_m.gguf"


def cluster_file(
    folder: Path, server: SshServer, *there: dict[str, Any], listen: str = "", more: str = ""
) -> tuple[Path, str]:
    """One worker here, and one over ssh for each table of keys, by default one; and its endpoint.

    `more` are sections of the file besides.
    """
    endpoint = listen or f"tcp://127.0.0.1:{three_ports()}"
    tables = "".join(_workers({"name": "garage", **one}, server) for one in there or ({},))
    path = folder / "cluster.toml"
    path.write_text(f"""\
[model]
path = "{MODEL}"
[coordinator]
listen = "{endpoint}"
threads = 1
[launch]
ssh_config = "{server.settings}"
logs = "{folder / "logs"}"
[[workers]]
name = "box"
{tables}{more}""")
    return path, endpoint


def _workers(keys: dict[str, Any], server: SshServer) -> str:
    stated = {"host": server.url, "command": shlex.join(COMMAND), **keys}
    return "[[workers]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in stated.items())


def _may_have_namespaces() -> bool:
    if os.getuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"em-probe-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, timeout=20).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)
    return made


needs_namespaces = pytest.mark.skipif(not _may_have_namespaces(), reason="no network namespaces can be made")


@dataclass(frozen=True, slots=True, kw_only=True)
class FarMachine:
    """A network namespace, and the link to it."""

    address: str
    """Its own."""
    near: str
    """This machine's, as seen from there."""
    within: tuple[str, ...]
    """The beginning of a command line that runs there."""


@contextmanager
def far_machine() -> Iterator[FarMachine]:
    """A namespace with a loopback interface of its own, joined to this one by a pair of virtual Ethernet interfaces."""
    mark = secrets.token_hex(3)
    name, subnet = f"em-{mark}", f"10.213.{secrets.randbelow(250)}"
    ours, theirs = f"em{mark}a", f"em{mark}b"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)

    ip("netns", "add", name)
    try:
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        ip("addr", "add", f"{subnet}.1/24", "dev", ours)
        ip("link", "set", ours, "up")
        ip("-n", name, "addr", "add", f"{subnet}.2/24", "dev", theirs)
        for interface in (theirs, "lo"):
            ip("-n", name, "link", "set", interface, "up")
        yield FarMachine(address=f"{subnet}.2", near=f"{subnet}.1", within=("ip", "netns", "exec", name))
    finally:
        ip("netns", "del", name)
