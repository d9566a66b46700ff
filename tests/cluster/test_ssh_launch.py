"""A cluster with a worker that is started over ssh, by a real sshd on the loopback interface."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from command_line import processes_of, run, wait_until
from running_up import Up, ask, up
from ssh_clusters import cluster_file
from ssh_server import SshServer, needs_sshd, ssh_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), needs_sshd]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server


def worker_of(endpoint: str, name: str) -> psutil.Process:
    """The process itself, not the one that runs it there."""
    commands = {one: one.info["cmdline"] for one in processes_of(endpoint, "expert_worker.main")}
    (found,) = [one for one, words in commands.items() if words[3:4] == ["expert_worker.main"] and name in words]
    return found


def is_up(cluster: Up) -> None:
    cluster.line(r"ready: 2 workers hold experts \((box-0|garage-0) 96, (box-0|garage-0) 96\)")


def test_a_worker_over_ssh_computes_the_same_bits_and_leaves_with_the_cluster(
    tmp_path: Path, server: SshServer
) -> None:
    config, endpoint = cluster_file(tmp_path, server)
    alone = json.loads(run("generate", "--json", "--max-tokens", 8, "In the beginning God created").stdout)
    with up(config, endpoint) as cluster:
        is_up(cluster)
        assert any(line.split()[1] == "garage-0:" for line in cluster.seen), "its log comes through"
        report = ask(config)
        assert report["sha256_logits"] == alone["sha256_logits"]
        assert {worker["name"] for worker in report["workers"]} == {"box-0", "garage-0"}
        assert worker_of(endpoint, "garage-0").parent().cmdline()[3:6] == ["coordinator.cli", "hosted", "run"]
        cluster.process.send_signal(signal.SIGINT)
        cluster.line("stopped by SIGINT")
        assert cluster.process.wait(30) == 0


def test_a_killed_launcher_leaves_nothing_there(tmp_path: Path, server: SshServer) -> None:
    config, endpoint = cluster_file(tmp_path, server)
    with up(config, endpoint) as cluster:
        is_up(cluster)
        worker_of(endpoint, "garage-0").suspend()  # it cannot even notice that the coordinator is gone
        cluster.process.kill()
        assert wait_until(lambda: not processes_of(endpoint), 20.0)


def test_a_worker_or_a_connection_that_ends_is_started_again(tmp_path: Path, server: SshServer) -> None:
    config, endpoint = cluster_file(tmp_path, server)
    with up(config, endpoint) as cluster:
        is_up(cluster)
        before = ask(config)
        worker_of(endpoint, "garage-0").kill()
        cluster.line(r"garage-0 \(process \d+\) exited with code 137")
        cluster.line(r"garage-0 started again")
        cluster.line("placement .* in force: 2 workers")
        assert ask(config)["sha256_logits"] == before["sha256_logits"]
        first = worker_of(endpoint, "garage-0")
        (ssh,) = [one for one in processes_of(endpoint) if one.name() == "ssh"]
        ssh.kill()
        cluster.line(r"garage-0 \(process \d+\) was ended by SIGKILL")
        cluster.line(r"garage-0 started again")
        cluster.line("placement .* in force: 2 workers")
        assert wait_until(lambda: not first.is_running(), 20.0)
        assert ask(config)["sha256_logits"] == before["sha256_logits"]
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(30) == 0


def test_a_cluster_for_one_answer_is_not_started_on_other_machines(tmp_path: Path, server: SshServer) -> None:
    config, endpoint = cluster_file(tmp_path, server)
    done = run("generate", "--config", config, "x")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: nothing listens at {endpoint}, and a cluster for one answer has no processes on other machines, "
        f"found garage on {server.url}: start it with `expertmesh up` first\n"
    )
