"""`python -P -m coordinator.on_ray.main`: asks a Ray cluster for workers, and keeps them running while it runs itself.

With `--check` it only tells, as a line of JSON, all that keeps them from running.
Exit code 0 when all workers have left in order or it is asked to end, 2 if it cannot do what it was asked to.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import native
from coordinator.on_ray.children import RayWorkers
from coordinator.on_ray.holder import Holder
from coordinator.on_ray.nodes import alive, problems, processors
from coordinator.on_ray.plan import RayWorker, dialled, why_not_placed
from coordinator.restarts import RestartPolicy
from coordinator.supervisor import Supervisor
from protocol.errors import ConfigError, ExpertmeshError

STOP_S = 5.0
LOOK_S = 0.2
KNOCK_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    options = _parse(arguments)
    if options.parent is not None and not native.die_with_parent(options.parent):
        return 0
    try:
        (_tell_problems if options.check else _keep_up)(options)
    except ExpertmeshError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    return 0


class Actors:
    """See `children.Actors`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._holder = ray.remote(Holder)

    def start(self, worker: RayWorker) -> Any:
        """On any node with so many CPUs left, apart from the others if possible."""
        placed = self._holder.options(num_cpus=worker.threads, scheduling_strategy="SPREAD", max_restarts=0)
        return placed.remote(worker.arguments)

    def ask(self, actor: Any, method: str, *arguments: object) -> Any:
        """A reference to what it will answer."""
        return getattr(actor, method).remote(*arguments)

    def answer(self, asked: Any) -> Any:
        """See `children.Actors`."""
        ready, _ = self._ray.wait([asked], timeout=0)
        if not ready:
            return None
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayError as error:
            raise LookupError(f"its actor is lost: {str(error).splitlines()[0]}") from None

    def kill(self, actor: Any) -> None:
        """Its worker dies with it."""
        self._ray.kill(actor)


def _tell_problems(options: argparse.Namespace) -> None:
    ray = _joined(options.address)
    try:
        workers = [RayWorker.from_json(text) for text in options.worker]
        sys.stdout.write(json.dumps(problems(ray, workers, options.listen, options.model)) + "\n")
    finally:
        ray.shutdown()


def _keep_up(options: argparse.Namespace) -> None:
    asked_to_end = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        asked_to_end.set()

    ray = _joined(options.address)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # after Ray has set its own
        signal.signal(number, end)
    try:
        workers = _reaching(ray, [RayWorker.from_json(text) for text in options.worker], options.listen)
        placed = RayWorkers(workers, Actors(ray), _say)
        supervisor = Supervisor(placed, policy := RestartPolicy())
        while not asked_to_end.wait(LOOK_S):
            codes = [child.exit_code() for child in placed.children.values()]
            if all(code == 0 for code in codes):
                return
            for line in supervisor.tick():
                sys.stderr.write(f"{line.removesuffix(' (process 0)')}\n")  # which has no node yet
            supervisor.begun = supervisor.begun or _all_sound(placed, policy)
        placed.stop(STOP_S, lambda: time.sleep(LOOK_S))
    finally:
        ray.shutdown()


def _joined(address: str) -> Any:
    """The module, connected. ConfigError if it is not installed, or no cluster is there."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"Ray cannot be loaded ({error}): pip install 'expertmesh[ray]'") from None
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"no Ray cluster can be joined at {address!r}: {reason}; `ray start --head` makes one"
        ) from None
    return ray


def _knock(address: str) -> None:
    """OSError if nobody listens there: Ray itself would try for minutes."""
    found = re.fullmatch(r"(?P<host>[^:/]+):(?P<port>[0-9]{1,5})", address)
    if found is not None:
        socket.create_connection((found["host"], int(found["port"])), timeout=KNOCK_S).close()


def _reaching(ray: Any, workers: Sequence[RayWorker], listen: str) -> list[RayWorker]:
    """Workers that can be placed, and dial what their nodes reach. ConfigError says why not."""
    nodes = alive(ray)
    if reason := why_not_placed(workers, processors(nodes)):
        raise ConfigError(reason)
    addresses = {node["NodeManagerAddress"] for node in nodes}
    here = ray.util.get_node_ip_address()
    return [dialled(worker, listen, here, addresses) for worker in workers]


def _all_sound(placed: RayWorkers, policy: RestartPolicy) -> bool:
    """Whether all have run for long enough to say that they can."""
    now = time.monotonic()
    return all(
        child.pid and child.exit_code() is None and now - child.started_at >= policy.sound_s
        for child in placed.children.values()
    )


def _say(name: str, line: str) -> None:
    sys.stderr.write(f"{name}: {line}\n")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="on_ray", description="Have a Ray cluster run workers.")
    parser.add_argument("--address", required=True, help="of the Ray cluster, or auto")
    parser.add_argument("--listen", required=True, metavar="ENDPOINT", help="where the coordinator listens")
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="the coordinator's")
    parser.add_argument("--check", action="store_true", help="tell all problems, and start nothing")
    parser.add_argument("--worker", action="append", required=True, metavar="JSON", help="one of them")
    parser.add_argument("--parent", type=int, metavar="PID", help="die with this process")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
