"""Prompts of 8k, 16k and 32k tokens on the demo model's geometry with two workers: speed, memory, and message sizes.

Each length has a cluster of its own. Memory is the most that was seen after any chunk of the prompt.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmark_page import heading, table
from clusters import LiveCluster, live_cluster
from footprint import Memory, memory_of
from measured_worker import largest_messages
from moe_models import write_model

import native
from coordinator.client import Client
from coordinator.sampling import Sampling
from protocol.messages import Finished, Prefilled
from protocol.model import Model

WORKERS = 2
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One prompt."""

    tokens: int
    prompt_s: float
    cache_bytes: int
    coordinator: Memory
    workers: list[Memory]
    largest: dict[str, int]
    """Of what a worker has sent and received, in bytes."""


def measure(model: Path, folder: Path, tokens: int, options: list[str]) -> Measured:
    """Read a prompt of random ids in a fresh cluster."""
    prompt = np.random.default_rng(tokens).integers(0, 4000, tokens).tolist()
    folder.mkdir()
    settings = {"worker_module": "measured_worker", "coordinator_options": options}
    with live_cluster(model, folder, workers=WORKERS, **settings) as cluster, Client(cluster.endpoint) as client:
        client.greet(10.0, cluster.check)
        request = client.submit(prompt, max_tokens=1, stop_ids=[], sampling=Sampling())
        seen = [memories(cluster)]
        for event in client.events(request, cluster.check):
            if isinstance(event, Prefilled):
                seen.append(memories(cluster))
            elif isinstance(event, Finished):
                assert event.report["local_entries"] == 0, event.report
                prompt_s = event.prompt_us * 1e-6
        sizes = [largest_messages(worker.log) for worker in cluster.workers]
    coordinator, *workers = map(most, zip(*seen, strict=True))
    return Measured(
        tokens=tokens,
        prompt_s=prompt_s,
        cache_bytes=cache_bytes(model, tokens + 1),
        coordinator=coordinator,
        workers=workers,
        largest={way: max(size[way] for size in sizes) for way in ("received", "sent")},
    )


def memories(cluster: LiveCluster) -> list[Memory]:
    """Of the coordinator, then of each worker."""
    return [memory_of(process.pid) for process in (cluster.coordinator, *cluster.workers)]


def most(seen: tuple[Memory, ...]) -> Memory:
    """The largest of each number."""
    return Memory(
        resident=max(one.resident for one in seen),
        proportional=max(one.proportional for one in seen),
        anonymous=max(one.anonymous for one in seen),
    )


def cache_bytes(path: Path, positions: int) -> int:
    """Of the keys and values of a conversation."""
    with Model.open(path) as model:
        of = model.geometry
    return native.KvCache(of.layers, positions, of.kv_heads, of.head_dim, "f16").bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 16384, 32768])
    parser.add_argument("--threads", type=int, default=2, help="of the coordinator; each worker has one")
    parser.add_argument("--chunk", type=int, default=256)
    options = parser.parse_args()
    print(heading("Long prompts"))
    cluster_options = ["--threads", str(options.threads), "--chunk", str(options.chunk)]
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "long.gguf", "demo-long")
        found = [measure(model, Path(folder) / str(tokens), tokens, cluster_options) for tokens in options.tokens]
    print(
        table(
            ["tokens", "prompt, s", "tokens/s", "coordinator, MiB", "KV cache, MiB", *_headings()],
            list(map(_row, found)),
        )
    )
    first, last = found[0], found[-1]
    ratios = [
        f"{now.anonymous / then.anonymous:.3f} anonymous, {now.resident / then.resident:.3f} resident"
        for now, then in zip(last.workers, first.workers, strict=True)
    ]
    print(f"memory of the workers at {last.tokens} tokens over that at {first.tokens}: {'; '.join(ratios)}")


def _headings() -> list[str]:
    workers = [f"worker {number}: resident, proportional, anonymous MiB" for number in range(WORKERS)]
    return [*workers, "largest call, bytes", "largest answer, bytes"]


def _row(one: Measured) -> list[object]:
    workers = [
        ", ".join(f"{size / MIB:.1f}" for size in (of.resident, of.proportional, of.anonymous)) for of in one.workers
    ]
    speed = [round(one.prompt_s, 1), round(one.tokens / one.prompt_s)]
    memory = [f"{size / MIB:.1f}" for size in (one.coordinator.resident, one.cache_bytes)]
    return [one.tokens, *speed, *memory, *workers, one.largest["received"], one.largest["sent"]]


if __name__ == "__main__":
    main()
