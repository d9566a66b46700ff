"""Whether there is a lookahead process, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import ClusterConfig, LookaheadConfig, WorkerGroup
from coordinator.halves import When
from coordinator.lookahead_choice import GIB, choose_lookahead, lookahead_here

FIT = "5 GiB of files fit in 5 GiB of memory that can be had"
DO_NOT = "6.5 GiB of files do not fit in 5 GiB of memory that can be had"


@pytest.mark.parametrize(
    ("workers", "enabled", "model_gib", "said"),
    [
        (1, "auto", 5.0, f"lookahead is off: {FIT}"),
        (1, "auto", 6.5, f"lookahead is on: {DO_NOT}"),
        (1, "on", 5.0, "lookahead is on: as configured"),
        (1, "off", 6.5, "lookahead is off: as configured"),
        (0, "on", 6.5, "lookahead is off: no workers here compute from files"),
        (0, "auto", 6.5, "lookahead is off: no workers here compute from files"),
    ],
)
def test_the_decision_and_its_reason(workers: int, enabled: When, model_gib: float, said: str) -> None:
    config = ClusterConfig(
        model=Path("m"),
        workers=(WorkerGroup(name="a", count=0), WorkerGroup(name="b", count=workers)),
        lookahead=LookaheadConfig(enabled=enabled),
    )
    choice = choose_lookahead(config, model_bytes=int(model_gib * GIB), available_bytes=5 * GIB)
    assert str(choice) == said
    assert choice.on == said.startswith("lookahead is on")


def test_the_largest_model_of_the_workers_counts_with_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"m-00001-of-00002.gguf": 3, "m-00002-of-00002.gguf": 4, "other.gguf": 5}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    sizes: list[int] = []
    monkeypatch.setattr(
        "coordinator.lookahead_choice.choose_lookahead", lambda config, **given: sizes.append(given["model_bytes"])
    )
    for paths in (["other.gguf"], ["m-00002-of-00002.gguf", "other.gguf"], ["."], ["missing.gguf"]):
        groups = (WorkerGroup(name=str(number), model_path=tmp_path / one) for number, one in enumerate(paths))
        lookahead_here(ClusterConfig(model=tmp_path / "other.gguf", workers=tuple(groups)))
    assert sizes == [5, 7, 12, 0]
