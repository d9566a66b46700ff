"""A real Ray cluster of several nodes on this machine: workers are placed on it, and move when a node is lost."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import processes_of, run, start, wait_until

ray_cluster = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

WITHIN_S = 120.0
SMALL: dict[str, Any] = {"object_store_memory": 80 << 20}
PROMPT = "In the beginning God created"


@pytest.fixture
def nodes() -> Iterator[Any]:
    """A head that has no room for workers, and two nodes with room for one and two."""
    cluster = ray_cluster.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL}
    )
    try:
        cluster.add_node(num_cpus=2, **SMALL)
        yield cluster
    finally:
        cluster.shutdown()


def answer(config: Path) -> dict[str, Any]:
    done = run("generate", "--config", config, "--json", "--max-tokens", 24, PROMPT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def held(endpoint: str) -> set[int]:
    """Processes of workers that hold experts."""
    done = run("status", endpoint, "--json")
    report = json.loads(done.stdout) if done.returncode == 0 else {"workers": []}
    return {worker["pid"] for worker in report["workers"] if worker["experts"]}


def test_all_that_is_wrong_with_nodes_is_told_before_anything_starts(
    nodes: Any, demo_model: Path, tmp_path: Path
) -> None:
    endpoint = f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
    config = tmp_path / "ray.toml"
    other = tmp_path / "other.gguf"
    content = bytearray(demo_model.read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    config.write_text(
        f'[model]\npath = "{demo_model}"\n[coordinator]\nlisten = "{endpoint}"\nthreads = 1\n'
        f'[[workers]]\nname = "box"\nthreads = 3\nmodel_path = "{other}"\n'
    )
    done = run("up", config, "--engine", "ray", "--ray-address", nodes.address, timeout=WITHIN_S)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first == "error: box-0 has 3 threads, and no node of Ray more than 2 CPUs"
    assert re.fullmatch(
        rf"error: node .* of Ray: {other} is another model: its fingerprint is \w+, expected \w+", second
    )
    assert processes_of(endpoint) == []


def test_workers_are_placed_on_nodes_and_move_when_one_is_lost(nodes: Any, demo_model: Path, tmp_path: Path) -> None:
    marked = tmp_path / demo_model.name
    marked.symlink_to(demo_model)
    endpoint = f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
    config = tmp_path / "ray.toml"
    config.write_text(
        f'[model]\npath = "{marked}"\n[coordinator]\nlisten = "{endpoint}"\nthreads = 1\n'
        '[[workers]]\nname = "box"\ncount = 2\n'
    )
    log = (tmp_path / "up.log").open("w")
    up = start("up", config, "--engine", "ray", "--ray-address", nodes.address, stdout=log, stderr=subprocess.STDOUT)

    def until(condition: Callable[[], bool]) -> None:
        assert wait_until(lambda: up.poll() is not None or condition(), WITHIN_S), Path(log.name).read_text()
        assert up.poll() is None, Path(log.name).read_text()

    try:
        until(lambda: len(held(endpoint)) == 2)
        before = held(endpoint)
        first = answer(config)
        [node] = nodes.worker_nodes
        nodes.add_node(num_cpus=2, **SMALL)
        nodes.remove_node(node, allow_graceful=False)
        until(lambda: len(held(endpoint) - before) == 2)
        second = answer(config)
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
    finally:
        up.kill()
        up.wait()
        log.close()
    assert wait_until(lambda: not processes_of(str(marked)), 30.0)
    alone = json.loads(run("generate", "--model", marked, "--json", "--max-tokens", 24, PROMPT).stdout)
    digests = {(one["sha256_ids"], one["sha256_logits"]) for one in (first, second, alone)}
    assert len(digests) == 1
    assert [one["local_entries"] for one in (first, second)] == [0, 0]
    assert [worker["calls"] > 0 for worker in first["workers"]] == [True, True]
