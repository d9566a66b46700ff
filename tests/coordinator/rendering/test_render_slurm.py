"""Batch scripts: bash reads them, Slurm's own parser where there is one, and the steps are those of the launcher."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rendered import KEYS, PYTHON, full_cluster

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
    assert f"\n{PYTHON} -P -m coordinator.main --model '/data/a model.gguf' --listen" in text
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
