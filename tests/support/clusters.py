"""Clusters of real processes on this machine, for tests: start, ask, break in many ways, and find what is left.

Everything waits for a condition under a deadline and looks for ended processes meanwhile. Children die with the test
process, whatever happens to it.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from cgroups import ControlGroup
from relays import BadLink

from coordinator.client import Client
from coordinator.sampling import Sampling
from protocol.endpoints import check_endpoint
from protocol.keys import dial_keys
from protocol.messages import Prefilled, Token
from protocol.neighbours import bulk_endpoint

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT), str(ROOT / "tests" / "support")]
ANSWER_S = 60.0
LEAST_TOKENS = 200
"""Of an answer with a script."""
END_S = 15.0
STARTER = ThreadPoolExecutor(1)
"""Starts all processes: each dies with the thread that started it, and this one lives as long as this process."""
PATIENT = ["--call-floor-ms", "20000"]
"""Options of a coordinator, so that a machine under load is no fault."""

FORGIVING = [*PATIENT, "--beat-s", "2"]
"""The same, and nobody is given up before he was silent for twelve seconds."""

HEDGING = ["--hedge-floor-ms", "50"]
"""Options of a coordinator that hedges as it does for users. Others in tests do not: a machine under load has stalls of
any length, and tests know who computes what."""

Status = dict[str, Any]
Condition = Callable[[Status], bool]


def in_force(report: Status) -> int:
    """How many workers compute."""
    return sum(worker["state"] == "ready" for worker in report["workers"])


def worker_of(report: Status, name: str) -> Status:
    """One worker's row."""
    (row,) = [worker for worker in report["workers"] if worker["name"] == name]
    return dict(row)


def all_copied(report: Status) -> bool:
    """Whether each worker's beats have told of copies of all that it holds, and of no others: nothing is loaded now."""
    return all(row["tiers"].get("copied_experts") == row["experts"] for row in report["workers"])


def is_away(report: Status, name: str) -> bool:
    """Whether a worker's membership is over."""
    return worker_of(report, name)["state"] in ("gone", "lost")


def is_out(report: Status, name: str) -> bool:
    """Whether it is late, or its membership is over."""
    return is_away(report, name) or worker_of(report, name)["state"] == "suspect"


@dataclass(frozen=True, slots=True)
class Then:
    """One step of what happens during an answer."""

    when: int | Condition
    """The index of a token, or a condition on the status; conditions are looked at while the prompt is read too."""
    do: Callable[[], object] = lambda: None

    def is_due(self, index: int, status: Callable[[], Status]) -> bool:
        """Whether it is time, after the token of that index; -1 is a part of the prompt."""
        return index >= self.when if isinstance(self.when, int) else self.when(status())


class RealProcess:
    """A role that was started, its log, and ways to hurt it."""

    def __init__(
        self,
        name: str,
        module: str,
        options: Sequence[str],
        log: Path,
        env: Mapping[str, str],
        group: ControlGroup | None = None,
        within: Sequence[str] = (),
    ) -> None:
        """It runs in the control group, if one is given; `within` is put before the command (`far_machine` has one)."""
        self.name = name
        self.log = log
        with log.open("ab") as stream:
            started: Future[subprocess.Popen[Any]] = STARTER.submit(
                subprocess.Popen if group is None else group.start,
                [*within, sys.executable, "-P", "-m", module, *options, "--parent", str(os.getpid())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")]), **env},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
            self._process = started.result(END_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._process.wait(END_S)

    def freeze(self) -> None:
        """SIGSTOP: alive, but it does nothing."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, within_s: float = END_S) -> int:
        """Its exit code; subprocess.TimeoutExpired if it does not end."""
        return self._process.wait(within_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an answer comes to."""

    ids: list[int]
    sha256_logits: str
    reason: str
    report: Status
    elapsed_s: list[float]
    """From the end of the prompt to the first token, and from each to the next."""

    def longest_pause_s(self) -> float:
        """Between two tokens."""
        return max(self.elapsed_s[1:])


class LiveCluster:
    """A coordinator and its workers."""

    def __init__(
        self,
        model: Path,
        log_dir: Path,
        *,
        workers: int,
        coordinator_options: Sequence[str] = (),
        worker_options: Sequence[str] = (),
        problems: Mapping[int, str] | None = None,
        isas: Sequence[str] = (),
        coordinator_isa: str = "",
        coordinator_module: str = "coordinator.main",
        models: Mapping[int, Path] | None = None,
        worker_module: str = "expert_worker.main",
        worker_env: Mapping[str, str] | None = None,
        peers: Collection[int] = (),
        peer_options: Sequence[str] = (),
        own_options: Mapping[int, Sequence[str]] | None = None,
        group: ControlGroup | None = None,
        listen: str | None = None,
        keys: Path | None = None,
        links: Mapping[int, BadLink] | None = None,
        caches: Mapping[int, Path] | None = None,
        weights_module: str = "expert_worker.weights.main",
        weights_options: Sequence[str] = (),
    ) -> None:
        """`problems` names, by number, workers that misbehave, and how (problem_worker); `isas` is for the workers.

        `models` names workers with a copy of the model of their own; `worker_module` is run, with `worker_env`, as the
        workers that have no problem. The workers numbered in `peers` are peers on an emulated device, called peer-N.
        `own_options` are a worker's own, after the `worker_options` of all. All processes run in the `group`. The
        coordinator listens at a fresh name unless told where to `listen`; all have the `keys` of that folder, or none.
        Workers in `links` are behind these, which lead to a port. `caches` names workers that have no model, and the
        folder into which they fetch the weights from a process beside the coordinator.
        """
        listen = listen or f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
        self.endpoint = check_endpoint(listen, dial=True, keyed=keys is not None)
        self.keys = dial_keys(keys)
        self.workers: list[RealProcess] = []
        self._replacing = threading.Lock()
        self._model = model
        self._models = dict(models or {})
        self._log_dir = log_dir
        self._problems = dict(problems or {})
        self._worker_module = worker_module
        self._worker_env = dict(worker_env or {})
        self._worker_options = list(worker_options)
        self._own_options = dict(own_options or {})
        self._group = group
        self._links = dict(links or {})
        self._peers = frozenset(peers)
        self._peer_options = list(peer_options)
        self._isas = list(isas)
        self._coordinator_isa = coordinator_isa
        self._coordinator_module = coordinator_module
        self._caches = dict(caches or {})
        self._weights = weights_module, list(weights_options)
        self._all: list[RealProcess] = []
        self._key_options = [] if keys is None else ["--keys", str(keys)]
        self._coordinator_options = ["--listen", listen, *self._key_options, "--model", str(model)]
        self._coordinator_options += ["--workers", str(workers), "--hedge-floor-ms", "60000"]
        self._coordinator_options += ["--placement", "even", *coordinator_options]
        self.coordinator = self.restart_coordinator()
        if self._caches:
            self.weights = self.start_weights()
        self.workers = [self.start_worker(number) for number in range(workers)]
        self._client = Client(self.endpoint, keys=self.keys)
        self._watcher = Client(self.endpoint, keys=self.keys)

    # --- processes --------------------------------------------------------------------------------------------

    def start_worker(self, number: int) -> RealProcess:
        """The worker of that number, for the first time or again."""
        is_peer = number in self._peers
        name = f"{'peer' if is_peer else 'worker'}-{number}"
        files = ["--model", str(self._models.get(number, self._model))]
        if number in self._caches:
            files = ["--cache", str(self._caches[number])]
        options = ["--connect", self.endpoint, *self._key_options, *files, "--name", name]
        if is_peer:
            return self.start(name, "emulated_peer", [*options, *self._peer_options])
        options += [*self._worker_options, *self._own_options.get(number, ())]
        env = self._worker_env | ({"EXPERTMESH_ISA": self._isas[number]} if self._isas else {})
        if (link := self._links.get(number)) is not None:
            options[1] = link.endpoint
            return self.start(name, "far_worker", options, env | link.routes)
        problem = self._problems.get(number)
        if problem is None:
            return self.start(name, self._worker_module, options, env)
        return self.start(name, "problem_worker", options, env | {"EXPERTMESH_TEST_PROBLEM": problem})

    def start_weights(self) -> RealProcess:
        """What gives weights beside the coordinator, for the first time or again."""
        module, options = self._weights
        where = ["--listen", bulk_endpoint(self.endpoint), *self._key_options]
        self.weights = self.start("weights", module, ["--model", str(self._model), *where, *options])
        return self.weights

    def add_worker(self) -> None:
        """One worker more, which is in force when this returns."""
        self.workers.append(self.start_worker(len(self.workers)))
        self.ready()

    def restart_worker(self, number: int) -> RealProcess:
        """A new life of a worker that was killed."""
        self.workers[number] = self.start_worker(number)
        return self.workers[number]

    def restart_coordinator(self, *more: str) -> RealProcess:
        """A new life of the coordinator, with `more` options."""
        self.coordinator = self.start(
            "coordinator",
            self._coordinator_module,
            [*self._coordinator_options, *more],
            {"EXPERTMESH_ISA": self._coordinator_isa},
        )
        return self.coordinator

    def resume_coordinator(self) -> float:
        """Kill the coordinator and start it again as the launcher does; when it was killed."""
        with self._replacing:
            killed = time.monotonic()
            self.coordinator.kill()
            self.restart_coordinator("--resume")
        return killed

    def start(
        self,
        name: str,
        module: str,
        options: Sequence[str],
        env: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> RealProcess:
        """Another process of this cluster, which ends with it; `within` as RealProcess has it."""
        process = RealProcess(name, module, options, self._log_dir / f"{name}.log", env or {}, self._group, within)
        self._all.append(process)
        return process

    # --- asking -----------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """What the coordinator reports; fails if it does not within seconds."""
        self._watcher.poll_status(0)  # an answer to an earlier question, perhaps, that was not waited for
        report = self._watcher.status(10.0, self.check)
        assert report is not None, f"no status\n{self.logs()}"
        return report

    def wait_for(self, condition: Condition, within_s: float = 30.0) -> Status:
        """The first status that fulfils the condition."""
        self._watcher.poll_status(0)  # as above
        deadline = time.monotonic() + within_s
        report: Status | None = None
        while time.monotonic() < deadline:
            self.check()
            report = self._watcher.status(1.0, self.check)
            if report is not None and condition(report):
                return report
        raise AssertionError(f"not within {within_s} s: {report}\n{self.logs()}")

    def ready(self) -> Status:
        """Wait until all the workers are in force."""
        count = len(self.workers)
        return self.wait_for(lambda report: report["state"] != "waiting" and in_force(report) == count)

    def answer(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        *,
        script: Sequence[Then] = (),
        more: int = 20,
        sampling: Sampling | None = None,
        drafts: int | None = None,
        beside: Sequence[Sequence[int]] = (),
    ) -> Answer:
        """Ask and follow. With a script, the answer is cancelled `more` tokens after its last step was done, and not
        before LEAST_TOKENS. The prompts `beside` it are other clients', who ask at the same moment, and leave when the
        answer has ended.

        So it takes as long as its conditions need, whatever the speed of the machine; it fails if they do not come true
        before the last token.
        """
        with ExitStack() as stack:
            others = [stack.enter_context(Client(self.endpoint, keys=self.keys)) for _ in beside]
            for client in (*others, self._client):
                client.greet(10.0, self.check)
            with self._standing_still() if others else nullcontext():
                for client, other in zip(others, beside, strict=True):
                    self._submit(client, other, max_tokens, Sampling(), drafts)
                request = self._submit(self._client, prompt_ids, max_tokens, sampling or Sampling(), drafts)
            return self._follow(self._client, request, script, more)

    def answers(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Answer]:
        """Ask for all of them at once, each as a client of its own."""
        with ExitStack() as stack:
            clients = [stack.enter_context(Client(self.endpoint, keys=self.keys)) for _ in prompts]
            for client in clients:
                client.greet(10.0, self.check)
            requests = [
                self._submit(client, prompt, max_tokens, Sampling())
                for client, prompt in zip(clients, prompts, strict=True)
            ]
            return [self._follow(*one, (), 0) for one in zip(clients, requests, strict=True)]

    def _submit(
        self,
        client: Client,
        prompt_ids: Sequence[int],
        max_tokens: int,
        sampling: Sampling,
        drafts: int | None = None,
    ) -> str:
        return client.submit(prompt_ids, max_tokens=max_tokens, stop_ids=[], sampling=sampling, drafts=drafts)

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        """Whatever is said to the coordinator within the block comes at once, at its end."""
        self.coordinator.freeze()
        try:
            yield
        finally:
            self.coordinator.thaw()

    def _follow(self, client: Client, request: str, script: Sequence[Then], more: int) -> Answer:
        steps, left = list(script), more
        tokens: list[Token] = []
        deadline = time.monotonic() + ANSWER_S

        def watch() -> None:
            self.check()
            assert time.monotonic() < deadline, f"{len(tokens)} tokens in {ANSWER_S} s\n{self.logs()}"

        for event in client.events(request, watch):
            watch()
            if isinstance(event, Token):
                assert event.index == len(tokens)
                tokens.append(event)
            if isinstance(event, Prefilled | Token):
                if steps and steps[0].is_due(len(tokens) - 1, self.status):
                    steps.pop(0).do()
                elif tokens and script and not steps:
                    left -= 1
                if script and not steps and left <= 0 and len(tokens) >= LEAST_TOKENS:
                    client.cancel(request)
            else:
                assert not steps, f"{len(steps)} steps left after {len(tokens)} tokens: {event.report}\n{self.logs()}"
                return Answer(
                    ids=[token.id for token in tokens],
                    sha256_logits=tokens[-1].sha256_logits,
                    reason=event.reason,
                    report=event.report,
                    elapsed_s=[token.elapsed_us * 1e-6 for token in tokens],
                )
        raise AssertionError("the last event is Finished")

    # --- the end ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Fail if the coordinator has ended, and was not to."""
        with self._replacing:
            code = self.coordinator.exit_code()
        assert code is None, f"the coordinator exited with {code}\n{self.logs()}"

    def stop(self) -> list[int]:
        """Ask for the end, if it has not come; exit codes of all that ran, in the order of their start."""
        running = [process for process in self._all if process.exit_code() is None]
        if running:
            self._client.stop()
        if self._caches:  # which hears nobody but workers
            self.weights.signal(signal.SIGTERM)
        return [process.wait() for process in running]

    def close(self) -> None:
        """End whatever still runs, by force."""
        for process in self._all:
            if process.exit_code() is None:
                process.kill()
        self._client.close()
        self._watcher.close()

    def survivors(self) -> list[str]:
        """Processes that speak of this cluster's endpoint, and its abstract sockets: none once it has ended."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            if any(self.endpoint in part for part in process.info["cmdline"] or ()):
                found.append(f"process {process.info['pid']}: {process.info['cmdline']}")
        sockets = Path("/proc/net/unix").read_text().splitlines()
        return found + [line for line in sockets if self.endpoint.removeprefix("ipc://") in line]

    def logs(self) -> str:
        """The end of every log."""
        parts = []
        for path in sorted(self._log_dir.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-40:]
            parts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(parts)


@contextmanager
def live_cluster(model: Path, log_dir: Path, **settings: Any) -> Iterator[LiveCluster]:
    """A cluster that is ready; at the end everything is stopped and nothing must be left.

    Settings are LiveCluster's.
    """
    cluster = LiveCluster(model, log_dir, **settings)
    try:
        cluster.ready()
        yield cluster
        cluster.stop()
    finally:
        cluster.close()
    assert not cluster.survivors(), cluster.survivors()
