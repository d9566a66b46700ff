"""The work of `expertmesh render`: read the cluster file, and write or print what comes of it."""

from __future__ import annotations

import getpass
from pathlib import Path

from coordinator.cli.output import put
from coordinator.cluster_file import read_config
from coordinator.lookahead_choice import lookahead_here
from coordinator.new_file import new_file
from coordinator.rendering.kubernetes import Around, manifests
from coordinator.rendering.one_machine import of_host
from coordinator.rendering.parts import cluster_name, supervised
from coordinator.rendering.slurm import script
from coordinator.rendering.systemd import units
from coordinator.rendering.yaml import documents
from protocol.errors import ConfigError


def render_systemd(path: Path, out: Path | None, *, python: str, user: str | None, host: str | None) -> None:
    """Units of what runs on this machine, or on another `host` of the file."""
    if "/" in python and not python.startswith("/"):  # a unit has no folder from which a path could start
        raise ConfigError(f"--python is {python}, expected a whole path, or a name that is found there")
    config = read_config(path)
    if host is None:
        plans = supervised(config, python=python, lookahead=lookahead_here(config)).processes
        runs_as, processes = "", [plan for plan in plans if plan.host is None]
    else:
        machine, processes = of_host(config, host, python=python)
        runs_as = machine.user
    files = units(cluster_name(path), processes, user=user or runs_as or getpass.getuser())
    if out is None:
        put("\n".join(f"# {name}\n{text}" for name, text in files.items()))
    _write(files, out)


def render_slurm(path: Path, out: Path | None, *, python: str) -> None:
    """A batch script."""
    name = cluster_name(path)
    text = script(name, read_config(path), path.absolute(), python=python)
    _write({f"expertmesh-{name}.sbatch": text}, out, text)


def render_kubernetes(path: Path, out: Path | None, *, image: str, claim: str) -> None:
    """A file of manifests."""
    name = cluster_name(path)
    text = documents(manifests(name, read_config(path), Around(image=image, claim=claim)))
    _write({f"expertmesh-{name}.yaml": text}, out, text)


def _write(files: dict[str, str], out: Path | None, text: str = "") -> None:
    """Each into the folder `out`, which is made if need be; or print `text`."""
    if out is None:
        put(text)
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with new_file(str(out / name), keep=(), option="--out") as file:
            file.write(content.encode())
        put(f"{out / name}\n")
