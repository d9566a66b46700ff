"""Cluster files: what they may say, and that everything wrong with one is reported at once, with line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import DEFAULT_LISTEN, ClusterConfig, WorkerGroup, default_threads, read_config
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
        device = "cpu"
        threads = 3
        kv = "f32"
        chunk = 32
        local_experts = true
        [[workers]]
        name = "box-a"
        count = 2
        threads = 4
        host = "local"
        ram_gib = "auto"
        [[workers]]
        name = "box-b"
        model_path = "copy.gguf"
        """,
    )
    assert config.coordinator.listen == "ipc://@some-name"
    assert (config.coordinator.threads, config.coordinator.kv, config.coordinator.chunk) == (3, "f32", 32)
    assert config.workers == (
        WorkerGroup(name="box-a", count=2, threads=4),
        WorkerGroup(name="box-b", model_path=tmp_path / "copy.gguf"),
    )


def test_all_problems_come_at_once_in_order_of_lines(tmp_path: Path) -> None:
    text = """\
[model]
path = "missing.gguf"

[coordinator]
listen = "tcp://0.0.0.0:7600"
threads = 0
device = "cuda:0"
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
name = "gpu"

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
        "line 16: workers.host",
        "line 17: workers.command",
        "line 20: workers.name",
        "line 21: workers.threads",
        "line 23: peers",
        "line 26: surprise",
    ]
    assert 'found "a b"' in found[5]
    assert "another group is called twin too" in found[9]
    by_key = {line.split(": ")[1]: line for line in found}
    assert "No such file" in by_key["model.path"]
    assert "a whole number from 1 to 512 is expected, found 0" in by_key["coordinator.threads"]
    assert '"cuda:0" is not available yet; "cpu" is' in by_key["coordinator.device"]
    assert "unknown; known are listen, threads" in by_key["coordinator.speed"]
    assert "not available yet" in by_key["peers"]
    assert "unknown; known are model, coordinator, workers" in by_key["surprise"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: model: this section is missing"),
        ("[model]\n", "line 1: model: the key path is missing"),
        ("\nmodel = 3\n", "line 2: model: a table is expected: [model]"),
        ("[model]\npath = 3\n", "line 2: model.path: the path of a model is expected, found 3"),
        ('[model]\npath = "none"\n', "line 2: model.path: {folder}/none: No such file or directory"),
        ('model.path = "model.gguf"\nworkers = 2\n', "line 2: workers: tables are expected: [[workers]]"),
        ('model.path = "model.gguf"\ncoordinator.kv = "q8"\n', 'line 2: coordinator.kv: "f16" or "f32" is expected'),
        ('model.path = "model.gguf"\n[[workers]]\ncount = 2\n', "line 2: workers: the key name is missing"),
        (
            'model.path = "model.gguf"\n[coordinator]\nspeed = 1\n',
            "line 3: coordinator.speed: unknown; known are listen, threads, kv, chunk, device, local_experts",
        ),
        (
            'model.path = "model.gguf"\n[coordinator]\nthreads = true\n',
            "line 3: coordinator.threads: {whole}, found true",
        ),
        (
            'model.path = "model.gguf"\n[coordinator]\nthreads = [true]\n',
            "line 3: coordinator.threads: {whole}, found [true]",
        ),
        (
            'model.path = "model.gguf"\n[coordinator]\nchunk = 1979-05-27\n',
            'line 3: coordinator.chunk: {whole}, found "1979',
        ),
        (
            'model.path = "model.gguf"\n[coordinator]\nlocal_experts = false\n',
            "line 3: coordinator.local_experts: false",
        ),
        ('model.path = "model.gguf"\n[coordinator]\nlisten = 7600\n', "line 3: coordinator.listen: an endpoint"),
        (
            'model.path = "model.gguf"\n[coordinator]\nlisten = "tcp://127.0.0.1:65535"\n',
            "line 3: coordinator.listen: endpoint 'tcp://127.0.0.1:65535': the next port is for work",
        ),
        (
            'model.path = "model.gguf"\n[placement]\nreplicas = 1.2\n',
            "line 2: placement: this section is not available",
        ),
    ],
)
def test_a_problem_is_told_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    (line,) = problems(tmp_path, text)
    assert line.startswith(problem.format(folder=tmp_path, whole="a whole number from 1 to 512 is expected"))


def test_what_is_no_toml_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a TOML file: .*line 2"):
        read(tmp_path, "[model]\npath = \n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "none.toml")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_bytes(b"[model]\xff")
    with pytest.raises(ConfigError, match="not a TOML file: byte 7 is not UTF-8 text"):
        read_config(file)


@pytest.mark.parametrize(("name", "workers"), [("local-1.toml", 1), ("local-2.toml", 2), ("local-4.toml", 4)])
def test_the_ready_files_are_good(name: str, workers: int) -> None:
    config = read_config(CONFIGS / name)
    assert config.model == CONFIGS / "demo-moe-q4_k_m.gguf"
    assert sum(group.count for group in config.workers) == workers


def test_the_ready_files_do_not_share_an_endpoint() -> None:
    files = sorted(CONFIGS.glob("*.toml"))
    assert len({read_config(file).coordinator.listen for file in files}) == len(files)
