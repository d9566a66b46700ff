"""Per layer, everything that is not kernel time on the critical path, for 1, 2 and 4 workers on this machine.

The kernel time of a layer is that of its busiest holder; the rest is planning, encoding, sockets, waking up, decoding
and adding. Rounds are interleaved, since the machine's state changes within seconds; each figure is the median of its
rounds, with their range.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmark_page import heading, table
from clusters import live_cluster
from moe_models import PRESETS, write_model

WORKERS = (1, 2, 4)
PARTS = ("plan", "send", "wait", "take", "kernel", "total", "overhead")
GEOMETRY: dict[str, Any] = {
    **PRESETS["bench-mid"],
    "layers": 4,
    "experts": 32,
    "vocab": 4096,
}
"""Layers of Qwen3-30B-A3B, with fewer experts to choose from: what is routed, sent and computed is the same, but more
of it stays in the caches."""


def measure(model: Path, folder: Path, workers: int, tokens: int) -> dict[str, float]:
    """One cluster's answer: the coordinator's own summary of its layers."""
    with live_cluster(model, folder, workers=workers, coordinator_options=["--threads", "1"]) as cluster:
        report = cluster.answer([1, 2, 3, 4], tokens).report
    assert report["local_entries"] == 0, report
    return dict(report["layers"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a whole model to ask, beside a synthetic one of its layers")
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(heading("Overhead of a layer"))
    with tempfile.TemporaryDirectory() as folder:
        models = [write_model(Path(folder) / "layers.gguf", **GEOMETRY), *([options.model] if options.model else [])]
        sides = [(model, workers) for model in models for workers in WORKERS]
        found: dict[tuple[Path, int], list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for model, workers in sides:
                found[model, workers].append(measure(model, Path(folder), workers, options.tokens))
    rows = []
    for (model, workers), rounds in found.items():
        for percent in (50, 99):
            columns = [[each[f"{part}_p{percent}_us"] / 1000 for each in rounds] for part in PARTS]
            spread = f"{min(columns[-1]):.3g}-{max(columns[-1]):.3g}"
            rows.append([model.stem, workers, f"P{percent}", *map(statistics.median, columns), spread])
    print(table(["model", "workers", "ms", *PARTS, "overhead, range"], rows))


if __name__ == "__main__":
    main()
