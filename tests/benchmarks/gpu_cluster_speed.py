"""Clusters with a GPU on one machine: speed, and where the time of a layer's experts goes, by who holds them."""

from __future__ import annotations

import time
from pathlib import Path

from benchmark_page import GrowingTable
from clusters import PATIENT, LiveCluster
from gpu_clusters import Arrangement, gpu_cluster
from gpu_model_speed import SHORT, Questions
from paired_figures import spread

from coordinator.client import Client
from coordinator.sampling import Sampling
from protocol.messages import Finished, Token

PARTS = ("plan", "send", "local", "wait", "device", "take", "total")
ARRANGEMENTS = (
    Arrangement(vram=1.0),
    Arrangement(vram=0.5, workers=2),
    Arrangement(vram=0.5, workers=4),
    Arrangement(vram=0.5, peers=1),
    Arrangement(vram=0.0, workers=2),
    Arrangement(workers=2),
)
ASK_S = 300.0


def cluster_speed(path: Path, folder: Path, questions: Questions, threads: int) -> None:
    """Prints a row for each arrangement; `threads` are shared by its workers."""
    ids = questions.ids(path)
    print(f"{path.name}, prompt of {questions.prompt} tokens, {questions.tokens} generated after {SHORT}.")
    print("Parts of a layer in microseconds, P50 of the last 4096 layers, nearly all of generated tokens.\n")
    columns = ["who holds the experts", "ready after, s", "prompt, tokens/s", "decode, tokens/s", *PARTS, "digest"]
    rows = GrowingTable(columns)
    for number, arrangement in enumerate(ARRANGEMENTS):
        each = max(1, threads // max(1, arrangement.workers))
        own = threads if arrangement.vram is None and not arrangement.workers else 2
        began = time.monotonic()
        with gpu_cluster(
            path,
            folder / str(number),
            arrangement,
            options=[*PATIENT, "--threads", str(own)],
            worker_options=["--threads", str(each)],
        ) as cluster:
            ready_s = time.monotonic() - began
            rows.add([_name(arrangement, each), ready_s, *_measured(cluster.live, ids, questions)])


def _measured(cluster: LiveCluster, ids: list[int], questions: Questions) -> list[object]:
    reading, writing, digests = [], [], set()
    report = {}
    with Client(cluster.endpoint) as client:
        client.greet(10.0, cluster.check)
        _ask(cluster, client, ids, 8)  # pages are touched
        for _ in range(questions.rounds):
            finished, _ = _ask(cluster, client, ids, 1)
            reading.append(len(ids) / finished.prompt_us * 1e6)
            finished, digest = _ask(cluster, client, ids[:SHORT], questions.tokens)
            writing.append((questions.tokens - 1) / finished.decode_us * 1e6)
            report = finished.report["layers"]
            digests.add(digest[:16])
    parts = [report[f"{part}_p50_us"] for part in PARTS]
    return [spread(reading), spread(writing), *map(float, parts), " ".join(sorted(digests))]


def _ask(cluster: LiveCluster, client: Client, ids: list[int], tokens: int) -> tuple[Finished, str]:
    request = client.submit(ids, max_tokens=tokens, stop_ids=[], sampling=Sampling())
    deadline, digest = time.monotonic() + ASK_S, ""
    for event in client.events(request, cluster.check):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer within {ASK_S:g} s\n{cluster.logs()}")
        if isinstance(event, Token):
            digest = event.sha256_logits
        if isinstance(event, Finished):
            return event, digest
    raise AssertionError("the last event is Finished")


def _name(arrangement: Arrangement, threads: int) -> str:
    parts = ["coordinator on the processor" if arrangement.vram is None else f"{arrangement.vram:.0%} in VRAM"]
    if arrangement.peers:
        parts.append(f"{arrangement.peers} peer on the same GPU")
    if arrangement.workers:
        parts.append(f"{arrangement.workers} workers of {threads} threads")
    return ", ".join(parts)
