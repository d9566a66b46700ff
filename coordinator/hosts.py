"""Another machine on which processes are started over ssh: what a cluster file says of it, and how it is reached."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOCAL = "local"
"""How a cluster file names this machine."""
HOST_FORM = "ssh://HOST, ssh://USER@HOST or ssh://USER@HOST:PORT"
DEFAULT_COMMAND = ("expertmesh",)
"""What is run there if the file does not say."""
NOT_REACHED = 255
"""Exit code of ssh itself: no connection, or none any more."""
CONNECT_S = 10
"""Time for a machine to accept a connection."""

MODULES = {"worker": "expert_worker.main", "peer": "peer_gpu.main", "weights": "expert_worker.weights.main"}
"""What is run as each kind of process."""

_HOST = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)

OPTIONS = (
    *("-T", "-x", "-a"),
    *("-o", "BatchMode=yes"),  # nobody is there to type a password
    *("-o", f"ConnectTimeout={CONNECT_S}"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),  # a dead connection ends it
    *("-o", "ControlMaster=no"),  # it may use a shared connection, but not become the one that outlives it
    *("-o", "RemoteCommand=none"),  # of a person's own settings
    *("-o", "LogLevel=ERROR"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine and the account there."""

    name: str
    """Without the brackets of an IPv6 address. It may be one that only the settings of ssh know."""
    user: str = ""
    """Empty leaves it to ssh."""
    port: int | None = None
    """None leaves it to ssh."""

    @classmethod
    def of(cls, text: str) -> Host:
        """ValueError, with the expected form, if it is none."""
        match = _HOST.fullmatch(text)
        port = int(match["port"]) if match is not None and match["port"] else None
        if match is None or (port is not None and not 1 <= port <= 65535):
            raise ValueError(f'"{LOCAL}", {HOST_FORM} is expected')
        return cls(name=match["name"].strip("[]"), user=match["user"] or "", port=port)

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{name}" + (f":{self.port}" if self.port else "")

    def running(
        self, words: Sequence[str], *, settings: Path | None = None, forwarded: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """The local command that runs `words` there, its streams and exit code being those of the remote process.

        `settings` is a file for `ssh -F`, if the account's own are not to be used. Whoever dials one of the `forwarded`
        (`host:port`) there reaches the same here; it ends if that cannot be.
        """
        options = list(OPTIONS)
        if settings is not None:
            options += ["-F", str(settings)]
        if self.port is not None:
            options += ["-p", str(self.port)]
        if forwarded:
            options += ["-o", "ExitOnForwardFailure=yes"]
        for address in forwarded:
            options += ["-R", f"{address}:{address}"]
        target = f"{self.user}@{self.name}" if self.user else self.name
        return ("ssh", *options, target, f"exec {shlex.join(words)}")  # a login shell gets it; it need not stay
