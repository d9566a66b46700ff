"""A cluster of two machines with keys: a worker over ssh, in a network namespace, that dials the coordinator itself."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from command_line import processes_of, run, wait_until
from free_ports import four_ports
from running_up import ask, up
from ssh_clusters import cluster_file, far_machine, needs_namespaces
from ssh_server import needs_sshd, ssh_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), needs_sshd, needs_namespaces]


@pytest.mark.parametrize("listen", ["0.0.0.0", "the address"])
def test_a_worker_elsewhere_dials_the_address_that_its_ssh_came_from(tmp_path: Path, listen: str) -> None:
    for made in (("new", tmp_path / "keys"), ("add", tmp_path / "keys", "garage")):
        assert run("keys", *made).returncode == 0
    there = tmp_path / "there"
    there.mkdir()
    shutil.move(tmp_path / "keys" / "garage.key", there)
    with far_machine() as far, ssh_server(tmp_path / "ssh", far.address, far.within) as server:
        endpoint = f"tcp://{far.near if listen != '0.0.0.0' else listen}:{four_ports()}"
        keys = {"keys_path": str(there / "garage.key")}
        config, _ = cluster_file(tmp_path, server, keys, listen=endpoint, more='[keys]\npath = "keys"\n')
        dry = run("up", config, "--dry-run")
        assert (dry.returncode, dry.stderr) == (0, "")
        assert "tunnel:" not in dry.stdout
        alone = json.loads(run("generate", "--json", "--max-tokens", 8, "In the beginning God created").stdout)
        with up(config, endpoint) as cluster:
            cluster.line("ready: 2 workers hold experts")
            report = ask(config)
            assert report["sha256_logits"] == alone["sha256_logits"]
            assert {worker["name"] for worker in report["workers"]} == {"box-0", "garage-0"}
            (worker,) = processes_of(str(there / "garage.key"), "expert_worker.main")
            assert f"tcp://{far.near}:{endpoint.rpartition(':')[2]}" in worker.cmdline()
            assert run("scale", "garage=2", "--config", config).returncode == 0
            cluster.line("ready: 3 workers hold experts")
            cluster.process.send_signal(signal.SIGINT)
            assert cluster.process.wait(30) == 0
        assert wait_until(lambda: not processes_of(str(there / "garage.key")), 10.0)


def test_an_address_that_leads_nowhere_is_told_before_anything_starts(tmp_path: Path) -> None:
    assert run("keys", "new", tmp_path / "keys").returncode == 0
    with far_machine() as far, ssh_server(tmp_path / "ssh", far.address, far.within) as server:
        port, keys = four_ports(), {"keys_path": str(tmp_path / "keys" / "client.key")}
        config, _ = cluster_file(tmp_path, server, keys, listen=f"tcp://0.0.0.0:{port}", more='[keys]\npath = "keys"\n')
        text = config.read_text()
        config.write_text(text.replace("[launch]\n", f'[launch]\naddress = "{far.address}"\n'))
        done = run("up", config)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "".join(
            f"error: garage on {server.url}: tcp://{far.address}:{port + more}, where the coordinator is to listen, "
            "cannot be dialled from there: Connection refused\n"
            for more in (0, 1, 2)
        )
