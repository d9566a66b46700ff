"""A real sshd, with keys, settings and a port of its own, for tests of what runs over ssh.

It listens on the loopback interface, or in a network namespace, which is another machine as far as sockets can tell.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import ROOT, wait_until
from free_ports import free_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
needs_sshd = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no sshd and ssh are installed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshServer:
    """One that listens."""

    address: str
    port: int
    settings: Path
    """For `ssh -F`: it has the key, and trusts this server and no other."""
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """What a cluster file calls it."""
        return f"ssh://{getpass.getuser()}@{self.address}:{self.port}"


@contextmanager
def ssh_server(folder: Path, address: str = "127.0.0.1", within: Sequence[str] = ()) -> Iterator[SshServer]:
    """A server whose sessions find the tree's packages, as this process does; it ends with the block.

    `within` is the beginning of a command line that starts it elsewhere, where it has that address.
    """
    assert SSHD is not None
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in ("host", "client"):
        key = folder / f"{name}_key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, stdin=subprocess.DEVNULL, timeout=20
        )
    shutil.copy(folder / "client_key.pub", folder / "authorized")
    port = free_port()
    (folder / "sshd_config").write_text(f"""\
ListenAddress {address}:{port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100:30:200
MaxSessions 100
SetEnv PYTHONPATH={ROOT}
""")
    known = folder / "known_hosts"
    known.write_text(f"[{address}]:{port} {(folder / 'host_key.pub').read_text()}")
    settings = folder / "ssh_config"
    settings.write_text(f"""\
Host *
    IdentityFile {folder}/client_key
    IdentitiesOnly yes
    UserKnownHostsFile {known}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
""")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it gives up its rights
    log = folder / "sshd.log"
    process = subprocess.Popen(
        [*within, SSHD, "-D", "-f", folder / "sshd_config", "-E", log], stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert wait_until(lambda: process.poll() is not None or _listens(address, port), 20.0)
        assert process.poll() is None, log.read_text()
        yield SshServer(address=address, port=port, settings=settings, log=log, process=process)
    finally:
        process.kill()
        process.wait()


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True
