"""Batch scripts: bash reads them, Slurm's own parser where there is one, and the steps are those of the launcher."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from command_line import wait_until
from rendered import KEYS, PYTHON, full_cluster

from coordinator.config import ClusterConfig, CoordinatorConfig, WorkerGroup
from coordinator.rendering.slurm import script
from protocol.errors import ConfigError

KNOWN = {"job-name", "output", "signal", "nodes", "ntasks", "cpus-per-task", "gpus-per-task"}


def rendered(keys: Path | None = None) -> str:
    return script("home", full_cluster(keys), Path("/shared/home.toml"), python=PYTHON)


def directives(text: str) -> list[dict[str, str]]:
    """Of each component of the job. What is no directive, or comes after the first command, is an error here."""
    head, body = re.split(r"\n(?=[^#])", text, maxsplit=1)
    assert "#SBATCH" not in body
    first, *lines = head.splitlines()
    assert first == "#!/bin/bash"
    components: list[dict[str, str]] = [{}]
    for line in lines:
        if line == "#SBATCH hetjob":
            components.append({})
            continue
        found = re.fullmatch(r"#SBATCH --([a-z-]+)=(\S+)", line)
        assert found, line
        assert found[1] in KNOWN
        components[-1][found[1]] = found[2]
    return components


def check_parsed(text: str, folder: Path) -> None:
    """By bash; and by Slurm where a controller answers."""
    path = folder / "job.sbatch"
    path.write_text(text)
    assert subprocess.run(["bash", "-n", path], capture_output=True, timeout=30, check=False).stderr == b""
    if shutil.which("sbatch") and not subprocess.run(["scontrol", "ping"], capture_output=True, timeout=30).returncode:
        done = subprocess.run(["sbatch", "--test-only", path], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0 or "Requested node configuration is not available" in done.stderr, done.stderr


def test_without_keys_the_launcher_does_all_on_one_node(tmp_path: Path) -> None:
    text = rendered()
    check_parsed(text, tmp_path)
    [needs] = directives(text)
    threads = 4 + 2 * 2 + 3 + 1 + 1
    assert (needs["nodes"], needs["ntasks"], needs["cpus-per-task"]) == ("1", "1", str(threads))
    assert needs["gpus-per-task"] == "1"
    assert text.endswith(f"\nexec srun --ntasks=1 {PYTHON} -P -m coordinator.cli up /shared/home.toml\n")


def test_with_keys_each_part_is_a_component_of_the_job(tmp_path: Path) -> None:
    text = rendered(KEYS)
    check_parsed(text, tmp_path)
    found = [(needs["ntasks"], needs["cpus-per-task"], needs.get("gpus-per-task")) for needs in directives(text)]
    assert found == [("1", "4", None), ("2", "2", None), ("1", "3", None), ("1", "1", "1"), ("1", "1", None)]
    assert f"\nkeep {PYTHON} -P -m coordinator.main --model '/data/a model.gguf' --listen" in text
    assert "--of" not in text
    assert "--device cuda:0" in text, "a step sees its own GPU alone"


def test_steps_run_what_they_are_to_run(tmp_path: Path) -> None:
    """With a `srun` that tells its words, as they come to the shell of a node."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "srun").write_text('#!/bin/bash\nfor task in 0 1; do SLURM_PROCID=$task "${@:5}"; done\n')
    (tools / "tell").write_text('#!/bin/bash\nIFS="|"; echo "${*:3}"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    text = script("home", full_cluster(KEYS), Path("x"), python="tell")
    done = subprocess.run(
        ["bash", "-c", text],
        env={"PATH": f"{tools}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = [line.split("|") for line in done.stdout.splitlines()]
    workers = [line for line in said if line[0] == "expert_worker.main"]
    names = sorted(line[line.index("--name") + 1] for line in workers)
    assert names == ["Far_1-0", "Far_1-1", "box-0", "box-1"]  # this srun takes every part for two tasks
    head = subprocess.run(["hostname"], capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    assert {line[line.index("--connect") + 1] for line in workers} == {f"tcp://{head}:7600"}
    [coordinator] = [line for line in said if line[0] == "coordinator.main"]
    assert coordinator[coordinator.index("--model") + 1] == "/data/a model.gguf"


def test_nodes_cannot_reach_a_name_of_one_machine() -> None:
    with pytest.raises(ConfigError, match="listen is ipc://@x: nodes reach each other at tcp://"):
        script("home", full_cluster(KEYS, listen="ipc://@x"), Path("x"), python=PYTHON)


STUB = f"""\
#!{sys.executable}
# As many lives as there are codes for its module in a file: each ends with the next one, or waits for SIGTERM.
import os, signal, sys, pathlib
module, folder = sys.argv[3], pathlib.Path(os.environ["STUB_FOLDER"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with (folder / module).open("a") as log:
    log.write(f"{{os.getpid()}}\\n")
life = len((folder / module).read_text().splitlines())
code = (folder / f"{{module}}.codes").read_text().split()[life - 1]
if code == "waits":
    signal.pause()
sys.exit(int(code))
"""
MODULES = ("coordinator.main", "expert_worker.weights.main", "expert_worker.main")


@contextmanager
def job(folder: Path, *codes: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], int]]]:
    """The script under bash, with tools that end with `codes` of MODULES; it, and how often a module has begun."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "srun").write_text('#!/bin/bash\nexec env SLURM_PROCID=0 "${@:5}"\n')
    (tools / "sleep").write_text("#!/bin/bash\n")
    (tools / "stub").write_text(STUB)
    for tool in tools.iterdir():
        tool.chmod(0o755)
    for module, text in zip(MODULES, codes, strict=True):
        (folder / f"{module}.codes").write_text(text)
    config = ClusterConfig(
        model=Path("m"),
        coordinator=CoordinatorConfig(listen="tcp://0.0.0.0:7600", threads=1),
        workers=(WorkerGroup(name="attic", cache=Path("/var/cache/expertmesh")),),
        keys=KEYS,
    )
    process = subprocess.Popen(
        ["bash", "-c", script("home", config, Path("x"), python="stub")],
        env={"PATH": f"{tools}:/usr/bin:/bin", "STUB_FOLDER": str(folder)},
        text=True,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    def begun(module: str) -> int:
        log = folder / module
        return len(log.read_text().splitlines()) if log.exists() else 0

    try:
        yield process, begun
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)


@pytest.mark.timeout(60)
def test_what_fails_is_started_again_until_it_ends_in_order_or_for_good(tmp_path: Path) -> None:
    with job(tmp_path, "1 waits", "1 1 waits", "1 1 1 2") as (process, begun):
        assert wait_until(lambda: [begun(module) for module in MODULES] == [2, 3, 4], 30.0)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert errors.count("exited with code 1") == 6
        assert "coordinator.main exited with code 1\n" in errors
        assert [begun(module) for module in MODULES] == [2, 3, 4], "nobody comes again who was told to end"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("code", [0, 2])
def test_a_job_ends_with_its_coordinator_and_its_code(tmp_path: Path, code: int) -> None:
    with job(tmp_path, str(code), "waits", "waits") as (process, begun):
        process.communicate(timeout=30)
        assert process.returncode == code
        assert begun("coordinator.main") == 1


@pytest.mark.timeout(60)
def test_a_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with job(tmp_path, "waits waits", "waits", "waits waits") as (process, begun):
        for module in ("coordinator.main", "expert_worker.main"):
            assert wait_until(lambda module=module: begun(module) == 1, 30.0)  # type: ignore[misc]
            os.kill(int((tmp_path / module).read_text()), signal.SIGKILL)
            assert wait_until(lambda module=module: begun(module) == 2, 30.0)  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
