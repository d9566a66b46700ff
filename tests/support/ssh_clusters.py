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
from free_ports import four_ports
from running_up import CONFIGS
from ssh_server import SshServer

MODEL = CONFIGS / "demo-moe-q4_k_m.gguf"


def cluster_file(
    folder: Path, server: SshServer, *there: dict[str, Any], listen: str = "", more: str = ""
) -> tuple[Path, str]:
    """One worker here, and one over ssh for each table of keys, by default one; and its endpoint.

    `more` are sections of the file besides.
    """
    endpoint = listen or f"tcp://127.0.0.1:{four_ports()}"
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
    interface: str
    """This machine's end of the link."""

    def link(self, state: str) -> None:
        """The link is "up" or "down": then nothing passes, and nobody is told."""
        _ip("link", "set", self.interface, state)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@contextmanager
def far_machine() -> Iterator[FarMachine]:
    """A namespace with a loopback interface of its own, joined to this one by a pair of virtual Ethernet interfaces."""
    mark = secrets.token_hex(3)
    name, subnet = f"em-{mark}", f"10.213.{secrets.randbelow(250)}"
    ours, theirs = f"em{mark}a", f"em{mark}b"

    _ip("netns", "add", name)
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _ip("addr", "add", f"{subnet}.1/24", "dev", ours)
        _ip("link", "set", ours, "up")
        _ip("-n", name, "addr", "add", f"{subnet}.2/24", "dev", theirs)
        for interface in (theirs, "lo"):
            _ip("-n", name, "link", "set", interface, "up")
        within = ("ip", "netns", "exec", name)
        yield FarMachine(address=f"{subnet}.2", near=f"{subnet}.1", within=within, interface=ours)
    finally:
        _ip("netns", "del", name)
