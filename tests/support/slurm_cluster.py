"""A Slurm of its own for tests: a controller and nodes on this machine that run jobs; nothing is left of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import wait_until
from free_ports import neighbouring_ports

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
TOOLS = {name: shutil.which(name, path=PATH) for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun")}
needs_slurm = pytest.mark.skipif(
    None in TOOLS.values() or os.getuid() != 0, reason="Slurm and munge are not installed, or this is not root"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """One that answers."""

    environment: Mapping[str, str]

    def run(self, *words: object, **settings: Any) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's, to its end."""
        settings = {"capture_output": True, "timeout": 30, "check": False, **settings}
        return subprocess.run([*map(str, words)], text=True, env={**os.environ, **self.environment}, **settings)


@contextmanager
def slurm(folder: Path, *, nodes: int) -> Iterator[Slurm]:
    """Nodes with 8 processors each, whatever this machine has; their jobs are those of this account."""
    names = [f"n{number}" for number in range(nodes)]
    settings = folder / "slurm.conf"
    settings.write_text(_settings(folder, names))
    (folder / "key").write_bytes(os.urandom(64))
    (folder / "key").chmod(0o600)
    folder.chmod(0o755)
    own = Slurm(environment={"SLURM_CONF": str(settings), "PATH": PATH})
    munge = ["--socket", folder / "munge", "--key-file", folder / "key", "--pid-file", folder / "munge.pid"]
    munge += ["--log-file", folder / "munge.log", "--seed-file", folder / "seed"]
    with ExitStack() as stack:

        def start(name: str, *words: object) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [*map(str, words)],
                env={**os.environ, **own.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(_end, process)

        start("munged", TOOLS["munged"], "-F", "--force", *munge)
        assert wait_until((folder / "munge").is_socket, 20.0), (folder / "munged.log").read_text()
        start("slurmctld", TOOLS["slurmctld"], "-D", "-c")
        for name in names:
            (folder / f"spool-{name}").mkdir()
            start(name, TOOLS["slurmd"], "-D", "-N", name)

        def all_idle() -> bool:
            return own.run("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle"] * nodes

        assert wait_until(all_idle, 40.0), (folder / "slurmctld.log").read_text()
        yield own


def _settings(folder: Path, names: list[str]) -> str:
    host = socket.gethostname()
    port = neighbouring_ports(1 + len(names))
    nodes = "".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} CPUs=8 State=UNKNOWN\n"
        for own, name in enumerate(names, port + 1)
    )
    (folder / "state").mkdir(parents=True)
    return f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge
MailProg=/bin/true
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
{nodes}PartitionName=all Nodes=ALL Default=YES State=UP
"""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
