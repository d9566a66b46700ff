"""Units of another machine: what the file has there, dialling the coordinator, with the key that lies there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run
from key_folders import key_folder
from rendered import KEYS, full_cluster

from coordinator.config import ClusterConfig, LaunchConfig, PeerConfig, WorkerGroup
from coordinator.hosts import Host
from coordinator.rendering.one_machine import of_host
from coordinator.rendering.parts import option_of
from protocol.errors import ConfigError

GARAGE, ATTIC = Host(name="garage.local", user="me"), Host(name="attic")
FAR_KEY = Path("/etc/expertmesh/garage.key")


def spread(
    listen: str = "tcp://0.0.0.0:7600", address: str | None = "gpu-box", keys: Path | None = KEYS
) -> ClusterConfig:
    """Workers here, in the garage and in the attic; a peer in the garage."""
    full = full_cluster(keys, listen=listen)
    far = WorkerGroup(name="far", count=2, threads=3, host=GARAGE, model_path=Path("/data/m.gguf"), keys_path=FAR_KEY)
    top = WorkerGroup(name="top", host=ATTIC, keys_path=FAR_KEY, cache=Path("/var/cache/expertmesh"))
    gpu = PeerConfig(name="far-gpu", host=GARAGE, keys_path=FAR_KEY)
    return replace(
        full, workers=(*full.workers, far, top), peers=(*full.peers, gpu), launch=LaunchConfig(address=address)
    )


@pytest.mark.parametrize("named", ["garage.local", "ssh://me@garage.local"])
def test_a_machine_has_its_own_processes_only(named: str) -> None:
    host, processes = of_host(spread(), named, python="/opt/py")
    assert host == GARAGE
    assert [process.name for process in processes] == ["far-0", "far-1", "far-gpu"]
    for process in processes:
        assert process.command[:3] == ("/opt/py", "-P", "-m")
        assert option_of(process.command, "--connect") == "tcp://gpu-box:7600"
        assert option_of(process.command, "--keys") == str(FAR_KEY)
    assert option_of(processes[0].command, "--model") == "/data/m.gguf"
    assert option_of(processes[0].command, "--of") == "2", "those of that machine, which do not hold all"


def test_one_that_fetches_its_weights_needs_no_model() -> None:
    _, [worker] = of_host(spread(), "attic", python="py")
    assert option_of(worker.command, "--cache") == "/var/cache/expertmesh"
    assert option_of(worker.command, "--model") is None


@pytest.mark.parametrize(
    ("config", "named", "said"),
    [
        (
            spread(),
            "cellar",
            "cellar is to be one machine of the cluster file, found ssh://me@garage.local, ssh://attic",
        ),
        (full_cluster(), "cellar", "cellar is to be one machine of the cluster file, found none"),
        (
            spread(address=None),
            "attic",
            r"listen is tcp://0.0.0.0:7600: what other machines dial is expected as address",
        ),
        (spread("tcp://127.0.0.1:7600"), "attic", "listen is tcp://127.0.0.1:7600, which no other machine can dial"),
    ],
)
def test_what_cannot_be_is_a_sentence(config: ClusterConfig, named: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        of_host(config, named, python="py")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_units_of_a_machine_are_written_and_verified(tmp_path: Path, demo_model: Path) -> None:
    keys = key_folder(tmp_path / "keys", "garage")
    file = tmp_path / "home.toml"
    file.write_text(f"""\
[model]
path = "{demo_model}"
[coordinator]
listen = "tcp://0.0.0.0:7600"
[keys]
path = "{keys}"
[launch]
address = "gpu-box.local"
[[workers]]
name = "box"
[[workers]]
name = "far"
count = 2
host = "ssh://root@garage.local"
keys_path = "/etc/expertmesh/garage.key"
""")
    done = run(
        "render", "systemd", file, "--host", "garage.local", "--python", sys.executable, "-o", tmp_path / "units"
    )
    assert (done.returncode, done.stderr) == (0, "")
    made = sorted((tmp_path / "units").iterdir())
    names = ["expertmesh-home-far-0.service", "expertmesh-home-far-1.service", "expertmesh-home.target"]
    assert [path.name for path in made] == names
    assert "User=root\n" in made[0].read_text()
    assert "coordinator" not in made[0].read_text().partition("[Service]")[0]
    command = ["systemd-analyze", "verify", "--man=no", *made]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr == ""
