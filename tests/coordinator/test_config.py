"""Cluster files: what they may say, and that everything wrong with one is reported at once, with line and key.

Every message stands in test_cluster_file_errors.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from key_folders import key_folder

from coordinator.cluster_file import read_config
from coordinator.config import (
    DEFAULT_LISTEN,
    ClusterConfig,
    LaunchConfig,
    LookaheadConfig,
    PeerConfig,
    PlacementConfig,
    WorkerGroup,
    default_threads,
)
from coordinator.hosts import Host
from coordinator.launch_plan import plan_here
from protocol.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"


def read(tmp_path: Path, text: str) -> ClusterConfig:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    return read_config(file)


def problems(tmp_path: Path, text: str) -> list[str]:
    """The lines of the error, each without the file's path, which they all start with."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    lines = str(caught.value).splitlines()
    start = f"{tmp_path / 'cluster.toml'}, "
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]


def test_the_least_a_file_can_say(tmp_path: Path) -> None:
    config = read(tmp_path, '[model]\npath = "model.gguf"\n')
    assert config.model == tmp_path / "model.gguf"
    assert config.workers == ()
    assert config.coordinator.listen == DEFAULT_LISTEN
    assert config.coordinator.threads == default_threads()
    assert config.coordinator.kv == "f16"
    assert (config.coordinator.device, config.coordinator.vram_gib) == ("cpu", None)


@pytest.mark.parametrize(("said", "expected"), [('"auto"', None), ("0", 0.0), ("0.25", 0.25), ("4096", 4096.0)])
def test_how_much_memory_of_a_device_experts_may_take(tmp_path: Path, said: str, expected: float | None) -> None:
    text = f'[model]\npath = "model.gguf"\n[coordinator]\ndevice = "cuda:0"\nvram_gib = {said}\n'
    assert read(tmp_path, text).coordinator.vram_gib == expected


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, '\ufeff[model]\r\npath = "model.gguf"\r\n').model == tmp_path / "model.gguf"


def test_everything_a_file_can_say(tmp_path: Path) -> None:
    (tmp_path / "copy.gguf").write_bytes(b"GGUF")
    config = read(
        tmp_path,
        """
        model = { path = "model.gguf" }
        [coordinator]
        listen = "ipc://@some-name"
        device = "cuda:1"
        vram_gib = 8
        threads = 3
        kv = "f32"
        chunk = 32
        drafts = 6
        halves = false
        profile = "a.profile"
        local_experts = false
        orphan_s = 5
        bulk = true
        bulk_mb_s = 12
        [[workers]]
        name = "box-a"
        count = 2
        threads = 4
        host = "local"
        ram_gib = "auto"
        [[workers]]
        name = "box-b"
        model_path = "copy.gguf"
        [[workers]]
        name = "box-c"
        cache = "weights"
        give = "tcp://127.0.0.1:7700"
        [[peers]]
        name = "gpu"
        [[peers]]
        name = "other-gpu"
        device = 1
        mode = "static"
        vram_gib = 11.5
        host = "local"
        model_path = "copy.gguf"
        """,
    )
    assert config.coordinator.listen == "ipc://@some-name"
    assert (config.coordinator.threads, config.coordinator.kv, config.coordinator.chunk) == (3, "f32", 32)
    assert config.coordinator.drafts == 6
    assert config.coordinator.halves == "off"
    assert not config.coordinator.local_experts
    assert config.coordinator.profile == tmp_path / "a.profile"
    assert config.coordinator.orphan_s == 5
    assert (config.coordinator.device, config.coordinator.vram_gib) == ("cuda:1", 8.0)
    assert (config.coordinator.bulk, config.coordinator.bulk_mb_s) == (True, 12.0)
    assert config.workers == (
        WorkerGroup(name="box-a", count=2, threads=4),
        WorkerGroup(name="box-b", model_path=tmp_path / "copy.gguf"),
        WorkerGroup(name="box-c", cache=tmp_path / "weights", give="tcp://127.0.0.1:7700"),
    )
    assert config.peers == (
        PeerConfig(name="gpu", device=0, vram_gib=None),
        PeerConfig(name="other-gpu", device=1, vram_gib=11.5, model_path=tmp_path / "copy.gguf"),
    )


def test_parts_on_other_machines(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("Host *\n")
    config = read(
        tmp_path,
        """
        [model]
        path = "model.gguf"
        [[workers]]
        name = "here"
        [[workers]]
        name = "garage"
        host = "ssh://me@garage.local:2222"
        command = "env LANG=C '/opt/my tools/expertmesh'"
        model_path = "/data/nothing/here.gguf"
        [[workers]]
        name = "none"
        count = 0
        host = "ssh://elsewhere"
        [[peers]]
        name = "gpu"
        host = "ssh://[fe80::1]"
        [launch]
        ssh_config = "settings"
        logs = "not/there/yet"
        """,
    )
    here, garage, none = config.workers
    assert (here.host, here.command) == (None, ("expertmesh",))
    assert garage.host == Host(user="me", name="garage.local", port=2222)
    assert garage.command == ("env", "LANG=C", "/opt/my tools/expertmesh")
    assert garage.model_path == Path("/data/nothing/here.gguf")
    assert config.peers[0].host == Host(name="fe80::1")
    assert config.remote == (garage, config.peers[0])
    assert none.host == Host(name="elsewhere")
    assert config.worker_threads == 1
    assert config.launch == LaunchConfig(ssh_config=tmp_path / "settings", logs=tmp_path / "not/there/yet")


def test_keys_let_a_cluster_listen_to_other_machines(tmp_path: Path) -> None:
    keys = key_folder(tmp_path / "keys", "garage")
    text = """
        [model]
        path = "model.gguf"
        [coordinator]
        listen = "tcp://0.0.0.0:7600"
        audit = 0.25
        [keys]
        path = "keys"
        [[workers]]
        name = "garage"
        keys_path = "keys/garage.key"
    """
    config = read(tmp_path, text)
    assert (config.keys, config.coordinator.listen, config.coordinator.audit) == (keys, "tcp://0.0.0.0:7600", 0.25)
    assert config.workers[0].keys_path == keys / "garage.key"


def test_with_keys_caches_are_given_to_other_machines_too(tmp_path: Path) -> None:
    keys = key_folder(tmp_path / "keys", "garage")
    text = """
        [model]
        path = "model.gguf"
        [coordinator]
        listen = "tcp://0.0.0.0:7600"
        [keys]
        path = "keys"
        [[workers]]
        name = "here"
        cache = "cache"
        give = "tcp://10.0.0.1:7700"
        [[workers]]
        name = "garage"
        host = "ssh://garage"
        cache = "/cache"
        give = "tcp://10.0.0.2:7700"
        keys_path = "/etc/keys"
    """
    here, garage = read(tmp_path, text).workers
    assert (here.give, garage.give, garage.keys_path) == (
        "tcp://10.0.0.1:7700",
        "tcp://10.0.0.2:7700",
        Path("/etc/keys"),
    )
    [found] = problems(tmp_path, text.replace('cache = "cache"', 'cache = "cache"\nkeys_path = "keys/garage.key"'))
    assert f"keys: {keys}/garage.key: a key to dial with, and whoever gives needs one to listen with, too" in found
    [found] = problems(tmp_path, text.replace('keys_path = "/etc/keys"', ""))
    assert found.endswith("the cluster has keys, and a path of its key there is expected: keys_path")


def test_all_problems_come_at_once_in_order_of_lines(tmp_path: Path) -> None:
    text = """\
[model]
path = "missing.gguf"

[coordinator]
listen = "tcp://0.0.0.0:7600"
threads = 0
device = "cuda:x"
speed = 11

[[workers]]
name = "a b"
count = "2"

[[workers]]
name = "twin"
host = "ssh://me@garage"
command = "/opt/expertmesh"

[[workers]]
name = "twin"
threads = true

[[peers]]
name = "twin-0"
mode = "adaptive"

[lookahead]
enabled = "maybe"
predictor = "guess"

[placement]
replicas = 0.5
[surprise]
"""
    found = problems(tmp_path, text)
    assert [line.split(": ")[0] + ": " + line.split(": ")[1] for line in found] == [
        "line 2: model.path",
        "line 5: coordinator.listen",
        "line 6: coordinator.threads",
        "line 7: coordinator.device",
        "line 8: coordinator.speed",
        "line 11: workers.name",
        "line 12: workers.count",
        "line 20: workers.name",
        "line 21: workers.threads",
        "line 24: peers.name",
        "line 25: peers.mode",
        "line 28: lookahead.enabled",
        "line 29: lookahead.predictor",
        "line 32: placement.replicas",
        "line 33: surprise",
    ]
    assert 'found "a b"' in found[5]
    assert "another group is called twin too" in found[7]
    by_key = {line.split(": ")[1]: line for line in found}
    assert "No such file" in by_key["model.path"]
    assert "a whole number from 1 to 512 is expected, found 0" in by_key["coordinator.threads"]
    assert 'cpu or cuda:0 to cuda:63 is expected, found "cuda:x"' in by_key["coordinator.device"]
    assert "unknown; known are listen, threads" in by_key["coordinator.speed"]
    assert "a worker is called twin-0 too" in by_key["peers.name"]
    assert "not available yet" in by_key["peers.mode"]
    assert '"auto", true or false is expected, found "maybe"' in by_key["lookahead.enabled"]
    assert "next-router" in by_key["lookahead.predictor"]
    assert "a number from 1 to 2 is expected, found 0.5" in by_key["placement.replicas"]
    assert "unknown; known are model, coordinator, workers, peers, lookahead" in by_key["surprise"]


def test_copies_of_experts_are_a_multiple_of_them(tmp_path: Path) -> None:
    assert read(tmp_path, '[model]\npath = "model.gguf"\n').placement == PlacementConfig(replicas=1.0)
    config = read(tmp_path, '[model]\npath = "model.gguf"\n[placement]\nreplicas = 1.2\n')
    assert config.placement == PlacementConfig(replicas=1.2)
    command = plan_here(config).processes[0].command
    assert command[command.index("--replicas") + 1] == "1.2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", LookaheadConfig()),
        ("[lookahead]\n", LookaheadConfig(enabled="auto", predictor="next-router")),
        ('[lookahead]\nenabled = true\npredictor = "random"\n', LookaheadConfig(enabled="on", predictor="random")),
        ("[lookahead]\nenabled = false\n", LookaheadConfig(enabled="off")),
    ],
)
def test_the_lookahead_process(tmp_path: Path, text: str, expected: LookaheadConfig) -> None:
    (tmp_path / "m.gguf").touch()
    (tmp_path / "c.toml").write_text(f'[model]\npath = "m.gguf"\n{text}')
    assert read_config(tmp_path / "c.toml").lookahead == expected


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lookahead", "the lookahead process is called lookahead too"),
        ("launcher", "the launcher is called launcher too"),  # its lines would be in the same file
        ("ray", "what holds on to workers on Ray is called ray too"),
        ("gpu-weights", "gpu-weights ends in -weights, as only names of what gives weights do"),
    ],
)
def test_a_peer_is_not_called_as_a_process_beside_it_is(tmp_path: Path, name: str, why: str) -> None:
    found = problems(tmp_path, f'[model]\npath = "m.gguf"\n[[peers]]\nname = "{name}"\n')
    assert found[-1].endswith(f"peers.name: {why}")


@pytest.mark.parametrize(
    ("give", "whose"),
    [
        ("tcp://127.0.0.1:7600", "the coordinator's"),
        ("tcp://127.0.0.1:7602", "the coordinator's"),
        ("tcp://127.0.0.1:7603", "the coordinator's"),
        ("ipc://@other", "that of other"),
    ],
)
def test_a_cache_is_not_given_where_something_else_of_the_file_listens(tmp_path: Path, give: str, whose: str) -> None:
    groups = "".join(
        f'[[workers]]\nname = "{name}"\ncache = "{name}"\ngive = "{at}"\n'
        for name, at in (("other", "ipc://@other"), ("box", give))
    )
    found = problems(tmp_path, f'[model]\npath = "m.gguf"\n{groups}')
    assert found[-1].endswith(f"workers.give: {give} is {whose} already: listen elsewhere")


def test_a_file_that_is_gone_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{tmp_path}/none\.toml: No such file or directory"):
        read_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "workers"), [("local-1.toml", 1), ("local-2.toml", 2), ("local-4.toml", 4), ("gpu.toml", 1)]
)
def test_the_ready_files_are_good(name: str, workers: int) -> None:
    config = read_config(CONFIGS / name)
    assert config.model == CONFIGS / "demo-moe-q4_k_m.gguf"
    assert sum(group.count for group in config.workers) == workers


def test_the_ready_files_do_not_share_an_endpoint() -> None:
    files = sorted(CONFIGS.glob("*.toml"))
    assert len({read_config(file).coordinator.listen for file in files}) == len(files)
