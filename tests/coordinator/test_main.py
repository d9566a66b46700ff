"""The coordinator's entry: what can be told without starting it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.main import inputs_endpoint, main, work_endpoint
from protocol.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("control", "work"),
    [
        ("tcp://127.0.0.1:7600", "tcp://127.0.0.1:7601"),
        ("tcp://localhost:7600", "tcp://127.0.0.1:7601"),
        ("tcp://[::1]:7600", "tcp://[::1]:7601"),
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"),
        ("ipc://@mesh", "ipc://@mesh-work"),
    ],
)
def test_work_listens_beside_control(control: str, work: str) -> None:
    assert work_endpoint(control) == work


@pytest.mark.parametrize(
    ("control", "inputs"),
    [
        ("tcp://127.0.0.1:7600", "tcp://127.0.0.1:7602"),
        ("tcp://127.0.0.1:65532", "tcp://127.0.0.1:65534"),
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"),
        ("ipc://@mesh", "ipc://@mesh-inputs"),
    ],
)
def test_inputs_are_published_beside_that(control: str, inputs: str) -> None:
    assert inputs_endpoint(control) == inputs


@pytest.mark.parametrize(
    "control", ["tcp://127.0.0.1:65535", "tcp://127.0.0.1:65534", "tcp://box:7600", "ipc:///tmp/file", "nonsense"]
)
def test_an_endpoint_that_cannot_be_is_refused(control: str) -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        work_endpoint(control)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "-1"], "0 to 256 expected"),
        (["--chunk", "513"], "1 to 512 expected"),
        (["--threads", "many"], "invalid"),
        (["--kv", "f8"], "invalid choice"),
        (["--beat-s", "0"], "0.01 to 2 expected"),
        (["--device", "cuda"], "cuda found, cpu or cuda:0 to cuda:63 expected"),
        (["--device", "cuda:0", "--vram-gib", "-1"], "-1 found, auto or a number from 0 to 4096 expected"),
        (["--device", "cuda:0", "--vram-gib", "much"], "much found, auto or a number from 0 to 4096 expected"),
        (["--workres", "1"], "unrecognized arguments"),
    ],
)
def test_bad_options_are_named(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(["--model", "m.gguf", "--listen", "ipc://@mesh", *options])
    assert exit_code.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "role",
    [
        ["coordinator.main", "--listen"],
        ["expert_worker.main", "--connect"],
        ["expert_worker.lookahead.main", "--connect"],
    ],
)
def test_a_process_whose_parent_is_gone_ends_before_it_loads_anything(role: list[str]) -> None:
    command = [sys.executable, "-P", "-X", "importtime", "-m", *role, "ipc://@mesh", "--model", "m.gguf"]
    ended = subprocess.run(
        [*command, "--parent", "1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=30,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 0
    assert "native" in ended.stderr
    assert not any(name in ended.stderr for name in ("numpy", "zmq", "argparse"))
