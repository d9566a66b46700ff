"""systemd: a service for each process of a machine, and a target for all of them.

A coordinator that ends in order tells all others to: so these are started again whatever they end with, and wait for
the next one. Who is to stay away is stopped by `systemctl`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coordinator.config import COORDINATOR, OF_A_CACHE
from coordinator.launch_plan import ProcessPlan
from coordinator.rendering.parts import dns_name
from coordinator.restarts import BAD_SETTING, RestartPolicy
from protocol.errors import ConfigError

STOP_S = 30
"""Time to end after SIGTERM."""
LIVES_S = 60
"""In which as many short lives as the launcher allows make systemd give up, too."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:@,=+-]+")


def units(cluster: str, processes: Sequence[ProcessPlan], *, user: str) -> dict[str, str]:
    """Texts by file name. Each process runs as `user`; the coordinator, if it is among them, is started first.

    ConfigError for a command that no unit can have.
    """
    target = f"expertmesh-{cluster}.target"
    services = {f"expertmesh-{cluster}-{dns_name(each.name)}.service": each for each in processes}
    first = [name for name, each in services.items() if each.name == COORDINATOR]
    files = {target: _target(cluster, list(services))}
    for name, process in services.items():
        after = " ".join(["network-online.target", *(one for one in first if one != name)])
        files[name] = _service(cluster, process, target, after=after, user=user)
    return files


def _target(cluster: str, services: Sequence[str]) -> str:
    return f"""\
[Unit]
Description=expertmesh cluster {cluster}
Wants={" ".join(services)}

[Install]
WantedBy=multi-user.target
"""


def _service(cluster: str, process: ProcessPlan, target: str, *, after: str, user: str) -> str:
    return f"""\
[Unit]
Description=expertmesh cluster {cluster}: {process.name}
PartOf={target}
Wants=network-online.target
After={after}
StartLimitIntervalSec={LIVES_S}
StartLimitBurst={RestartPolicy().limit}

[Service]
Type=exec
User={user}
ExecStart={" ".join(map(quoted, process.command))}
Restart={"on-failure" if process.name == COORDINATOR else "always"}
RestartSec=1
RestartPreventExitStatus={"" if process.name.endswith(OF_A_CACHE) else BAD_SETTING}
KillMode=mixed
TimeoutStopSec={STOP_S}
LimitMEMLOCK=infinity
NoNewPrivileges=yes
ProtectSystem=full
"""


def quoted(word: str) -> str:
    """One word of ExecStart: no specifier, variable or escape is seen in it. ConfigError if it is no line."""
    if not word.isprintable():
        raise ConfigError(f"{word!r}: a unit of systemd has no place for letters that cannot be printed")
    if _PLAIN.fullmatch(word):
        return word
    for special, plain in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, plain)
    return f'"{word}"'
