"""A job of a real Slurm: a component on each node, which come back when they end, and all of which end in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import processes_of, run, wait_until
from free_ports import neighbouring_ports
from key_folders import key_folder
from running_up import ask
from slurm_cluster import Slurm, needs_slurm, slurm

from coordinator.client import Client
from protocol.keys import dial_keys

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), needs_slurm]

WITHIN_S = 90.0
WORKERS = {"box-0", "box-1", "attic-0"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Slurm]:
    with slurm(tmp_path / "slurm", nodes=3) as nodes:
        yield nodes


def cluster_file(folder: Path, model: Path) -> tuple[Path, int]:
    """With keys, two workers, and one that fetches its weights; and its port."""
    port, keys = neighbouring_ports(4), key_folder(folder / "keys")
    path = folder / "home.toml"
    path.write_text(f"""\
[model]
path = "{model}"
[coordinator]
listen = "tcp://0.0.0.0:{port}"
threads = 1
[keys]
path = "{keys}"
[[workers]]
name = "box"
count = 2
[[workers]]
name = "attic"
cache = "{folder / "cache"}"
""")
    return path, port


def test_a_job_serves_comes_back_and_ends(nodes: Slurm, demo_model: Path, tmp_path: Path) -> None:
    config, port = cluster_file(tmp_path, demo_model)
    marker = str(tmp_path / "keys")
    (tmp_path / "job.sbatch").write_text(run("render", "slurm", config).stdout)
    log = tmp_path / "job.log"
    sent = nodes.run("sbatch", "--parsable", f"--output={log}", tmp_path / "job.sbatch")
    assert sent.returncode == 0, sent.stderr
    number = sent.stdout.strip()

    def told() -> str:
        return log.read_text() if log.exists() else nodes.run("squeue").stdout

    def ready() -> dict[str, Any]:
        """Of each worker that computes, its process."""
        with Client(f"tcp://127.0.0.1:{port}", keys=dial_keys(tmp_path / "keys")) as client:
            report = client.status(1.0) or {"workers": []}
        return {one["name"]: one["pid"] for one in report["workers"] if one["state"] == "ready"}

    try:
        assert wait_until(lambda: set(ready()) == WORKERS, WITHIN_S), told()
        before, processes = ask(config), ready()
        [coordinator] = processes_of(marker, "coordinator.main")
        for process in (coordinator, psutil.Process(processes["box-1"])):
            process.kill()
        assert wait_until(lambda: set(now := ready()) == WORKERS and now["box-1"] != processes["box-1"], WITHIN_S), (
            told()
        )
        assert ready()["box-0"] == processes["box-0"], "it has waited"
        assert ask(config)["sha256_logits"] == before["sha256_logits"]
        nodes.run("scancel", "--batch", "--signal=TERM", number, check=True)
        assert wait_until(lambda: not processes_of(marker), WITHIN_S), told()
        assert wait_until(lambda: not nodes.run("squeue", "-h", "-t", "running,completing").stdout.strip(), WITHIN_S)
        assert "JobState=COMPLETED" in nodes.run("scontrol", "show", "job", number).stdout, told()
    finally:
        nodes.run("scancel", number)
        for process in processes_of(marker):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
