"""Steps of a coordinator and workers, windows whole and in halves in turns: decoding of several sequences, and prompts.

With --delay-ms and --mbit, workers are behind a relay that holds everything back for so long, each way, as a network
does; with --own-processors they do not take from this machine's. The coordinator is in this process, so that two steps
that are compared follow each other immediately. Processor time is that of the coordinator and the workers: what halves
cost where nothing is left to overlap.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmark_page import GrowingTable, heading
from clusters import RealProcess
from free_ports import four_ports
from moe_models import PRESETS, write_model
from paired_figures import spread
from relays import RelayProcess

import native
from coordinator.cluster import Cluster
from coordinator.deadlines import CallLimits
from coordinator.dense import DenseModel
from coordinator.dispatch import MeshExperts
from coordinator.engine import Chunk, Engine
from coordinator.halves import Halves, When
from coordinator.hello import Terms
from coordinator.members import Members
from coordinator.planner import Planner
from expert_worker.bank import ExpertBank
from protocol.messages import I32, MAX_ROWS
from protocol.model import Model
from protocol.stock import Stock
from protocol.wire import Bound, longest_work_frame, wait

UNTIMED = 2
"""Pairs that come before: they fault pages in."""
CONTEXT = 64
"""Positions before the first decoded token."""
GEOMETRY: dict[str, Any] = {**PRESETS["bench-mid"], "layers": 4}
"""A third of the layers, with all their experts."""


class Took(NamedTuple):
    """What a step took."""

    wall_s: float
    used_s: float
    """Processor time of all processes."""


class Coordinator:
    """One in this process, with workers in theirs."""

    def __init__(self, model: Model, options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
        listen, far = four_ports(), four_ports()
        control = stack.enter_context(Bound(f"tcp://127.0.0.1:{listen}"))
        longest = longest_work_frame(model.geometry.width)
        work = stack.enter_context(Bound(f"tcp://127.0.0.1:{listen + 1}", max_frame_bytes=longest))
        if options.delay_ms or options.mbit:
            for port in (0, 1):
                self._relay(far + port, listen + port, options, stack)
        else:
            far = listen
        terms = Terms(
            session="benchmark",
            fingerprint=model.fingerprint,
            geometry=model.geometry.handshake(),
            work=f"tcp://127.0.0.1:{far + 1}",
            beat_s=0.5,
        )
        tokens = iter(range(1 << 30))
        stock = Stock.of(model.layout)
        members = Members(
            terms,
            Planner(stock=stock, own=stock.nothing()),
            expected=options.workers,
            fresh_token=lambda: f"token-{next(tokens)}",
        )
        self.cluster = Cluster(
            control,
            work,
            members,
            wait=lambda timeout_s: wait((work, control), timeout_s),
            limits=CallLimits(floor_s=30),
        )
        pool = native.Pool(options.threads)
        bank = stack.enter_context(ExpertBank(model, pool))
        self.experts = MeshExperts(self.cluster, bank, model.layout)
        self.engine = Engine(model, self.experts, DenseModel(model, pool, MAX_ROWS, "f16"))
        stack.callback(self.engine.close)
        self._pids = [os.getpid()]
        for number in range(options.workers):
            arguments = ["--connect", f"tcp://127.0.0.1:{far}", "--model", str(options.model), "--name", f"w-{number}"]
            arguments += ["--threads", str(options.worker_threads)]
            module = "pretending_worker" if options.own_processors else "expert_worker.main"
            worker = RealProcess(f"w-{number}", module, arguments, folder / f"w-{number}.log", {})
            stack.callback(worker.kill)
            self._pids.append(worker.pid)
        while not members.assignment.ready:
            self.cluster.wait(0.05)
            self.attend()

    @staticmethod
    def _relay(listen: int, target: int, options: argparse.Namespace, stack: ExitStack) -> None:
        relay = RelayProcess(listen, target)
        stack.callback(relay.close)
        relay.say(f"delay {options.delay_ms}")
        relay.say(f"mbit {options.mbit}")

    def attend(self) -> None:
        """Between steps."""
        self.cluster.attend()
        self.cluster.members.assignment.switch()

    def timed(self, chunks: Sequence[Chunk], when: When) -> Took:
        """A step."""
        self.attend()
        self.experts._halves = Halves(when=when)
        began, used = time.perf_counter(), self._used_s()
        self.engine.step(chunks)
        return Took(wall_s=time.perf_counter() - began, used_s=self._used_s() - used)

    def _used_s(self) -> float:
        """Processor time of all threads until now."""
        tasks = [task for pid in self._pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(task.read_text().split()[0]) for task in tasks) * 1e-9


@contextmanager
def coordinator(options: argparse.Namespace, folder: Path) -> Iterator[Coordinator]:
    """Ready to compute."""
    with ExitStack() as stack:
        yield Coordinator(stack.enter_context(Model.open(options.model)), options, folder, stack)


def pairs(mesh: Coordinator, sequences: int, rows: int, context: int, count: int) -> tuple[list[Took], list[Took]]:
    """Steps that give each of `sequences` so many rows: whole, and in halves, in pairs."""
    rng = np.random.default_rng(sequences * 1000 + rows)
    vocabulary, capacity = mesh.engine._geometry.vocabulary, context + rows * 2 * (count + UNTIMED)
    found: dict[When, list[Took]] = {"off": [], "on": []}
    going = [mesh.engine.new_sequence(np.zeros(1, np.int32), capacity - 1) for _ in range(sequences)]

    def chunks(ids: I32) -> list[Chunk]:
        return [Chunk(sequence=one, ids=each) for one, each in zip(going, ids, strict=True)]

    if context:
        for one in going:
            ids = rng.integers(0, vocabulary, context).astype(np.int32)
            mesh.timed([Chunk(sequence=one, ids=ids, logits="none")], "off")
    for number in range(-UNTIMED, count):
        ids = rng.integers(0, vocabulary, (sequences, rows)).astype(np.int32)
        order: tuple[When, When] = ("off", "on") if number % 2 else ("on", "off")
        for when in order:
            took = mesh.timed(chunks(ids), when)
            if number >= 0:
                found[when].append(took)
    return found["off"], found["on"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="another model than 4 layers of a synthetic one of real geometry")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of the coordinator")
    parser.add_argument("--worker-threads", type=int, default=1)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--mbit", type=float, default=0.0)
    parser.add_argument("--own-processors", action="store_true", help="workers sleep for as long as they would compute")
    parser.add_argument("--sequences", type=int, nargs="*", default=[2, 4, 8, 16])
    parser.add_argument("--chunks", type=int, nargs="*", default=[64, 128, 256, 512])
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    print(heading("Windows in halves"))
    with tempfile.TemporaryDirectory() as folder:
        options.model = options.model or write_model(Path(folder) / "wide.gguf", **GEOMETRY)
        with coordinator(options, Path(folder)) as mesh:
            columns = ["step", "whole, ms", "in halves, ms", "whole / halves, paired", "processor ms: whole", "halves"]
            table = GrowingTable([*columns, "whole / halves"])
            works = [(count, 1, CONTEXT, 4 * options.pairs) for count in options.sequences]
            works += [(1, rows, 0, options.pairs) for rows in options.chunks]
            for sequences, rows, context, count in works:
                whole, halves = pairs(mesh, sequences, rows, context, count)
                name = f"{sequences} sequences, a token each" if rows == 1 else f"{rows} rows of a prompt"
                ms = [spread([1000 * took.wall_s for took in side]) for side in (whole, halves)]
                ratios = [one.wall_s / other.wall_s for one, other in zip(whole, halves, strict=True)]
                used = [1000 * sum(took.used_s for took in side) / len(side) for side in (whole, halves)]
                table.add([name, *map(str, ms), str(spread(ratios)), *used, used[0] / used[1]])
            assert mesh.cluster.counters.local_entries == 0, mesh.cluster.counters


if __name__ == "__main__":
    main()
