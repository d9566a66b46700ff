"""kill -9 of the launcher, the coordinator or a worker at random moments, 50 times: nothing is left."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest
from command_line import abstract_sockets, processes_of, run, start, wait_until
from leftovers import shared_memory

from coordinator.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ROLES = {"coordinator": "coordinator.main", "worker": "expert_worker.main"}
ANSWER = ["--workers", "2", "--threads", "2", "--ignore-eos", "--json", "In the beginning God created"]
LATEST_S = 1.4
"""Random moments lie between 0 and this: the start takes about half of it, and answers last longer."""
WHOLE = 120


@pytest.fixture
def model(tmp_path: Path, demo_model: Path) -> Path:
    """The demo model under a name that marks all processes of this test; the file name counts for the fingerprint."""
    marked = tmp_path / "model" / demo_model.name
    marked.parent.mkdir()
    shutil.copy(demo_model, marked)
    return marked


class Trial:
    """One command, in a folder and with a folder for temporary files of its own, both to stay empty."""

    def __init__(self, folder: Path, model: Path, tokens: int) -> None:
        self.model = str(model)
        self.home, self.temporary = folder / "home", folder / "tmp"
        for path in (self.home, self.temporary):
            path.mkdir(exist_ok=True)
        self.shared_memory = shared_memory()
        self.endpoints: set[str] = set()
        self.process = start(
            "generate", "--model", model, "--max-tokens", tokens, *ANSWER,
            cwd=self.home, env={"TMPDIR": str(self.temporary)},
        )  # fmt: skip

    def victims(self, role: str) -> list[psutil.Process]:
        """Processes of a role; their endpoint is remembered."""
        found = []
        for process in processes_of(self.model):
            with contextlib.suppress(psutil.NoSuchProcess):
                command = process.cmdline()
                self.endpoints |= {word for word in command if word.startswith("ipc://")}
                if ROLES[role] in command:
                    found.append(process)
        return found

    def wait_for_step(self, step: int) -> None:
        """Until the coordinator is in mid-answer, that many steps far, or the command has ended before it was seen."""
        (endpoint,) = {word for word in self.endpoints if not word.endswith("-work")}
        with Client(endpoint) as client:

            def is_there() -> bool:
                return (client.status(1.0) or {"step": -1})["step"] >= step

            assert wait_until(lambda: self.process.poll() is not None or is_there(), within_s=30.0)

    def left(self) -> list[str]:
        """Everything that should not be there any more."""
        return [
            *(f"process {process.pid}" for process in processes_of(self.model)),
            *(line for endpoint in self.endpoints for line in abstract_sockets(endpoint.removeprefix("ipc://"))),
            *(str(path) for folder in (self.home, self.temporary) for path in folder.iterdir()),
            *(shared_memory() - self.shared_memory),
        ]

    def end(self) -> tuple[int, str, str]:
        """Wait for the command and for all that it started; exit code, output and errors."""
        output, errors = self.process.communicate(timeout=60)
        assert wait_until(lambda: not self.left(), within_s=10.0), self.left()
        return self.process.returncode, output, errors


def let_run(trial: Trial, seconds: float) -> None:
    """Until a random moment, or the command's end if that comes first."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        trial.process.wait(seconds)


@pytest.mark.parametrize("seed", range(2))
def test_killing_the_launcher_leaves_nothing(tmp_path: Path, model: Path, seed: int) -> None:
    moments = random.Random(f"launcher {seed}")
    for _ in range(9):
        trial = Trial(tmp_path, model, 2000)
        let_run(trial, moments.uniform(0, LATEST_S))
        trial.victims("coordinator")
        assert trial.process.poll() is None, "the moment was to come before the end"
        trial.process.kill()
        code, output, _ = trial.end()
        assert (code, output) == (-9, "")


@pytest.mark.parametrize("seed", range(2))
def test_killing_the_coordinator_leaves_nothing(tmp_path: Path, model: Path, seed: int) -> None:
    moments = random.Random(f"coordinator {seed}")
    for _ in range(8):
        trial = Trial(tmp_path, model, 2000)
        assert wait_until(lambda: bool(trial.victims("coordinator")), within_s=30.0)  # noqa: B023
        let_run(trial, moments.uniform(0, LATEST_S))
        (victim,) = trial.victims("coordinator")
        victim.kill()
        code, output, errors = trial.end()
        assert (code, output) == (2, "")
        assert errors == f"error: coordinator (process {victim.pid}) was ended by SIGKILL\n"


@pytest.mark.parametrize("seed", range(2))
def test_killing_a_worker_leaves_nothing_and_changes_nothing(tmp_path: Path, model: Path, seed: int) -> None:
    undisturbed = json.loads(run("generate", "--model", model, "--max-tokens", WHOLE, *ANSWER).stdout)
    moments = random.Random(f"worker {seed}")
    for number in range(8):
        trial = Trial(tmp_path, model, WHOLE)
        assert wait_until(lambda: len(trial.victims("worker")) == 2, within_s=30.0)  # noqa: B023
        in_mid_answer = number % 2 == 0
        if in_mid_answer:
            trial.wait_for_step(moments.randrange(WHOLE // 2))
        else:
            let_run(trial, moments.uniform(0, LATEST_S))
        for victim in moments.sample(trial.victims("worker") or [trial.process], 1):
            with contextlib.suppress(psutil.NoSuchProcess):  # the answer has ended, and it with it
                victim.kill()
        code, output, errors = trial.end()
        if code == 0:
            report = json.loads(output)
            assert [report[key] for key in ("ids", "sha256_logits")] == [
                undisturbed[key] for key in ("ids", "sha256_logits")
            ]
        else:
            assert not in_mid_answer, "only before all had joined may the answer be given up"
            assert code == 2, errors
            assert "was ended by SIGKILL" in errors
