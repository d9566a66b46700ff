"""What it costs a layer that its input is published: nobody listens, and a lookahead process does, in turns.

Its rounds are interleaved, since the machine's state changes within seconds; figures are medians, with their range. The
time in publishing is counted by the coordinator itself, so it is no difference of two noisy figures.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmark_page import heading, table
from clusters import LiveCluster
from moe_models import write_model
from step_overhead import GEOMETRY

FIGURES = ("publication", "layer, P50", "overhead, P50")


def measure(model: Path, folder: Path, tokens: int, options: list[str] | None) -> dict[str, float]:
    """Microseconds of one cluster's answer; `options` are those of a lookahead process, None if there is none."""
    cluster = LiveCluster(model, folder, workers=1, coordinator_options=["--threads", "1"])
    try:
        cluster.ready()
        if options is not None:
            joining = ["--connect", cluster.endpoint, "--model", str(model), "--name", "lookahead"]
            cluster.start("lookahead", "expert_worker.lookahead.main", [*joining, *options])
            cluster.wait_for(lambda report: bool(report["lookahead"]))
        layers = cluster.answer([1, 2, 3, 4], tokens).report["layers"]
        inputs = cluster.status()["inputs"]
        cluster.stop()
    finally:
        cluster.close()
    each_us = inputs["us"] / max(1, inputs["published"])
    return dict(zip(FIGURES, (each_us, layers["total_p50_us"], layers["overhead_p50_us"]), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(heading("What a layer input costs"))
    sides: dict[str, list[str] | None] = {
        "no lookahead": None,
        "lookahead": [],
        "it does nothing": ["--delay-ms", "999"],
    }
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "layers.gguf", **GEOMETRY)
        for _ in range(given.rounds):
            for name, options in sides.items():
                found[name].append(measure(model, Path(folder), given.tokens, options))
    rows = []
    for name, rounds in found.items():
        columns = [[each[figure] for each in rounds] for figure in FIGURES]
        rows.append([name, *(f"{statistics.median(one):.3g} ({min(one):.3g}-{max(one):.3g})" for one in columns)])
    print(table(["us", *FIGURES], rows))


if __name__ == "__main__":
    main()
