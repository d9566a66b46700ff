"""Long prompts: they can be watched and ended while they are read, and workers need no more memory for them."""

from __future__ import annotations

import json
import os
import pty
import re
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from clusters import PATIENT, LiveCluster, Status, Then, live_cluster, worker_of
from command_line import run, start, wait_until
from footprint import memory_of
from free_ports import four_ports
from measured_worker import largest_messages
from moe_models import write_model
from reference_answer import reference_for

from coordinator.client import Client
from coordinator.sampling import Sampling
from protocol.messages import Finished, Prefilled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PROMPT = np.random.default_rng(2).integers(1, 4000, 2000).tolist()
HASTY = ["--call-floor-ms", "300", "--beat-s", "0.2"]
SOON_S = 15.0
"""Time for what takes a moment."""
CHUNK = 8
"""Of the clusters that are up."""
STEPS_OF_DIGEST = 40 // CHUNK + 7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model's geometry."""
    return write_model(tmp_path_factory.mktemp("long") / "long.gguf", "demo-long")


def has_read(tokens: int) -> Callable[[Status], bool]:
    """So many tokens of a prompt are read, and not yet all."""
    return lambda report: any(done >= tokens for done, _ in report["reading"])


# --- bounds -----------------------------------------------------------------------------------------------------


def test_workers_need_no_more_memory_and_no_larger_messages_for_longer_prompts(model: Path, tmp_path: Path) -> None:
    options = [*PATIENT, "--chunk", "128", "--threads", "1"]
    with live_cluster(
        model, tmp_path, workers=1, worker_module="measured_worker", coordinator_options=options
    ) as cluster:
        short, long = (most_of_worker(cluster, PROMPT[:length]) for length in (500, 2000))
    assert long[0] < 1.1 * short[0], "anonymous memory"
    assert long[1] == short[1], "bytes of the largest messages"


def most_of_worker(cluster: LiveCluster, prompt: list[int]) -> tuple[int, dict[str, int]]:
    """While a prompt is read, in whole chunks at first: anonymous memory at most, and the largest messages so far."""
    anonymous = 0
    with Client(cluster.endpoint) as client:
        client.greet(SOON_S, cluster.check)
        request = client.submit(prompt, max_tokens=1, stop_ids=[], sampling=Sampling())
        for event in client.events(request, cluster.check):
            if isinstance(event, Prefilled):
                anonymous = max(anonymous, memory_of(cluster.workers[0].pid).anonymous)
            elif isinstance(event, Finished):
                assert worker_of(event.report, "worker-0")["entries"] == 6 * 4 * len(prompt), "the worker did it all"
    return anonymous, largest_messages(cluster.workers[0].log)


# --- failures ---------------------------------------------------------------------------------------------------


def test_workers_that_are_killed_or_frozen_in_mid_prompt_only_cost_time(model: Path, tmp_path: Path) -> None:
    def suspect(report: Status) -> bool:
        return worker_of(report, "worker-1")["state"] == "suspect"

    def alone(report: Status) -> bool:
        return worker_of(report, "worker-0")["state"] == "lost" and worker_of(report, "worker-1")["state"] == "ready"

    options = [*HASTY, "--chunk", "8"]  # so that it is read for long enough to be looked at again and again
    with live_cluster(model, tmp_path, workers=2, coordinator_options=options) as cluster:
        killed, frozen = cluster.workers
        script = [
            Then(has_read(300), frozen.freeze),
            Then(suspect, frozen.thaw),
            Then(lambda report: bool(report["late_replies"]), killed.kill),
            Then(alone, lambda: cluster.wait_for(has_read(600))),
        ]
        answer = cluster.answer(PROMPT, 400, script=script)
    assert answer.report["replans"] > 0
    with reference_for(model, PROMPT, 400) as reference:
        reference.check(answer)


# --- from the command line --------------------------------------------------------------------------------------


class Asked:
    """A cluster that is up, with one worker and small chunks, and what is asked of it on the command line."""

    def __init__(self, config: Path, endpoint: str) -> None:
        self.config = config
        self.endpoint = endpoint

    def generate(self, prompt: list[int], tokens: int = 2000, *more: object) -> list[object]:
        """Arguments of the command."""
        ids = ",".join(map(str, prompt))
        return ["generate", "--config", self.config, "--prompt-ids", ids, "--max-tokens", tokens, "--ignore-eos", *more]

    def digest(self) -> str:
        """Of a short answer."""
        done = run(*self.generate(PROMPT[:40], 8, "--json"))
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["sha256_logits"])

    def wait_for(self, condition: Callable[[Status], bool], within_s: float = SOON_S) -> Status:
        """The first status that fulfils the condition."""
        report: Status = {}

        def fulfilled() -> bool:
            nonlocal report
            report = client.status(SOON_S) or {}
            return bool(report) and condition(report)

        with Client(self.endpoint) as client:
            assert wait_until(fulfilled, within_s), report
        return report


@contextmanager
def asked(model: Path, folder: Path, listen: str) -> Iterator[Asked]:
    config = folder / "long.toml"
    config.write_text(
        f'[model]\npath = "{model}"\n[coordinator]\nlisten = "{listen}"\nthreads = 1\nchunk = {CHUNK}\n'
        '[[workers]]\nname = "box"\n'
    )
    with (folder / "up.log").open("wb") as log:
        up = start("up", config, stdout=log, stderr=log)
    try:
        cluster = Asked(config, listen)
        cluster.wait_for(lambda report: report["state"] == "ready", 30.0)
        yield cluster
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
    finally:
        up.kill()
        up.wait()


def free_endpoint(kind: str) -> str:
    """Of this machine."""
    if kind == "ipc":
        return f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
    return f"tcp://127.0.0.1:{four_ports()}"


@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_a_client_that_leaves_in_mid_prompt_frees_the_cluster_at_once(model: Path, tmp_path: Path, kind: str) -> None:
    with asked(model, tmp_path, free_endpoint(kind)) as cluster:
        before, began = cluster.digest(), STEPS_OF_DIGEST
        for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            asking = start(*cluster.generate(PROMPT))
            try:
                cluster.wait_for(has_read(40))
                asking.send_signal(number)
                freed = cluster.wait_for(lambda report: report["requests"] == 0)
                output, errors = asking.communicate(timeout=SOON_S)
            finally:
                asking.kill()
                asking.wait()
            assert (asking.returncode, output, errors) == (code, "", "")
            assert freed["step"] < began + len(PROMPT) // CHUNK, "the prompt was not read to its end"
            assert cluster.digest() == before
            began = freed["step"] + STEPS_OF_DIGEST
        assert wait_until(lambda: "is gone" in (tmp_path / "up.log").read_text(), SOON_S)  # by way of the launcher


def test_on_a_terminal_a_bar_shows_how_far_the_prompt_is(model: Path) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    asking = start(
        "generate", "--model", model, "--chunk", 50, "--max-tokens", 1, "--prompt-ids", ",".join(map(str, PROMPT)),
        stdout=subprocess.DEVNULL, stderr=theirs, env={"TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""

    def ended() -> bool:
        nonlocal shown
        try:
            shown += os.read(ours, 1 << 16)
        except BlockingIOError:
            return False
        except OSError:  # the other side is closed
            return True
        return False

    try:
        assert wait_until(ended, 60.0), shown
        assert asking.wait(SOON_S) == 0
    finally:
        asking.kill()
        asking.wait()
        os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert "reading the prompt" in text
    assert re.search(r"\d+/2000 \d+ a second, \d+ s left", text), text
    assert "prompt   2000 tokens" in text
