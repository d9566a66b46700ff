"""What is found out about other machines before anything is started, by a real sshd, here and in a namespace."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import processes_of, run, wait_until
from free_ports import four_ports
from running_up import ask, private_copy, up
from ssh_clusters import MODEL, cluster_file, far_machine, needs_namespaces
from ssh_server import SshServer, needs_sshd, ssh_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), needs_sshd]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server


def other_model(folder: Path) -> Path:
    """The same numbers, one weight changed."""
    copy = folder / MODEL.name
    content = bytearray(MODEL.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    return copy


@contextmanager
def somebody_else(within: Sequence[str], port: int) -> Iterator[None]:
    """Within the block something listens at a port of that machine, and says nothing of use."""
    listen = f"import socket; s = socket.create_server(('127.0.0.1', {port})); print(flush=True); s.accept()"
    other = subprocess.Popen([*within, sys.executable, "-c", f"{listen}[0].send(b'x')"], stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield
        finally:
            other.kill()


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_all_that_is_wrong_anywhere_is_told_at_once(
    tmp_path: Path, server: SshServer, options: tuple[str, ...]
) -> None:
    other, closed = other_model(tmp_path), four_ports()
    config, endpoint = cluster_file(
        tmp_path,
        server,
        {"name": "off", "host": f"ssh://127.0.0.1:{closed}"},
        {"name": "bare", "command": "/opt/none/expertmesh"},
        {"name": "lost", "model_path": "/nowhere/m.gguf"},
        {"name": "wrong", "model_path": str(other)},
        {"name": "greedy", "ram_gib": 4000, "count": 2},
        {"name": "old", "command": "printf 1.2.3"},
    )
    done = run("up", config, *options)
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line.removeprefix("error: ") for line in done.stderr.splitlines()]
    place = f"lost, wrong, greedy on {server.url}: "
    assert lines[0].startswith(f"off on ssh://127.0.0.1:{closed}: it cannot be reached: ")
    assert "Connection refused" in lines[0]
    assert lines[1].startswith(f"bare on {server.url}: there is no /opt/none/expertmesh: ")
    assert lines[2] == f"{place}model file '/nowhere/m.gguf' does not exist"
    assert lines[3].startswith(f"{place}{other} is another model: its fingerprint is ")
    assert lines[4].startswith(f"{place}copies of experts take 8000 GiB of memory, ")
    assert lines[5] == (
        f"old on {server.url}: `printf 1.2.3 hosted check` exited with code 0: no report was found in its output"
    )
    assert len(lines) == 6
    assert processes_of(endpoint) == []


def test_problems_here_hide_none_elsewhere(tmp_path: Path, server: SshServer) -> None:
    """Of this machine: a port, memory, a disk, a copy of the model; of the other: its model."""
    other = other_model(tmp_path)
    (tmp_path / "file").touch()
    more = f"""\
[[workers]]
name = "copy"
model_path = "{other}"
[[workers]]
name = "greedy"
ram_gib = 4000
[[workers]]
name = "attic"
cache = "{tmp_path / "file" / "cache"}"
"""
    config, endpoint = cluster_file(tmp_path, server, {"name": "lost", "model_path": "/nowhere/m.gguf"}, more=more)
    port = int(endpoint.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port + 3)):
        done = run("up", config)
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line.removeprefix("error: ") for line in done.stderr.splitlines()]
    here = "box, copy, greedy, attic: "
    assert lines[0] == (
        f"tcp://127.0.0.1:{port + 3}, which is needed beside {endpoint}, is in use already: listen elsewhere"
    )
    assert lines[1] == f"{other} is not the model of {MODEL}"
    assert lines[2].startswith(f"{here}copies of experts take 4000 GiB of memory, ")
    assert lines[3].startswith(f"{here}cache {tmp_path}/file/cache cannot be used: ")
    assert lines[4] == f"lost on {server.url}: model file '/nowhere/m.gguf' does not exist"
    assert len(lines) == 5
    assert processes_of(endpoint) == []


def test_a_cluster_of_this_machine_alone_is_looked_at_too(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    config.write_text(config.read_text() + 'ram_gib = 4000\n[[workers]]\nname = "attic"\ncache = "/proc/cache"\n')
    done = run("up", config)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("error: box, attic: copies of experts take 4000 GiB of memory, ")
    assert second.startswith("error: box, attic: cache /proc/cache ")
    assert processes_of(endpoint) == []


@needs_namespaces
@pytest.mark.parametrize("beside", [1, 2, 3])
def test_each_port_at_the_far_end_of_a_tunnel_is_looked_at(tmp_path: Path, beside: int) -> None:
    with far_machine() as far, ssh_server(tmp_path / "ssh", far.address, far.within) as server:
        cache = {"name": "attic", "cache": str(tmp_path / "cache")}
        config, endpoint = cluster_file(tmp_path, server, cache)
        host, _, port = endpoint.rpartition(":")
        with somebody_else(far.within, int(port) + beside):
            done = run("up", config)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"error: attic on {server.url}: {host}:{int(port) + beside}, which is to lead to the coordinator, is "
            "something else there\n"
        )


def test_a_key_that_is_not_accepted_is_told_and_no_password_asked_for(tmp_path: Path, server: SshServer) -> None:
    host = f"ssh://nobody-of-that-name@127.0.0.1:{server.port}"
    config, _ = cluster_file(tmp_path, server, {"host": host})
    done = run("up", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: garage on {host}: it cannot be reached: ")
    assert "Permission denied" in done.stderr


@needs_namespaces
def test_a_machine_that_cannot_dial_a_loopback_endpoint_gets_a_tunnel(tmp_path: Path) -> None:
    with far_machine() as far, ssh_server(tmp_path / "ssh", far.address, far.within) as server:
        config, endpoint = cluster_file(tmp_path, server, {"count": 2})
        dry = run("up", config, "--dry-run").stdout
        assert f"\ntunnel:{server.url.removeprefix('ssh://')}: leads from {server.url} to here\n" in dry
        alone = json.loads(run("generate", "--json", "--max-tokens", 8, "In the beginning God created").stdout)
        with up(config, endpoint) as cluster:
            cluster.line(r"ready: 3 workers hold experts")
            report = ask(config)
            assert report["sha256_logits"] == alone["sha256_logits"]
            assert {worker["name"] for worker in report["workers"]} == {"box-0", "garage-0", "garage-1"}
            cluster.process.send_signal(signal.SIGINT)
            assert cluster.process.wait(30) == 0
        assert wait_until(lambda: not processes_of(str(server.settings)), 10.0)


@needs_namespaces
def test_a_port_that_something_else_has_at_the_far_end_of_a_tunnel_is_named(tmp_path: Path) -> None:
    with far_machine() as far, ssh_server(tmp_path / "ssh", far.address, far.within) as server:
        config, endpoint = cluster_file(tmp_path, server)
        with somebody_else(far.within, int(endpoint.rpartition(":")[2])):
            done = run("up", config)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"error: garage on {server.url}: {endpoint}, which is to lead to the coordinator, is something else there\n"
        )
