"""A model larger than its memory: where a token's experts come from, and what waiting for them costs. Run as root.

Every answer is one process group of its own, in a memory control group that leaves room for a part of the experts, with
the model's pages dropped before. All ways to get at the experts are measured in turns, beside llama.cpp in the same
group, and again on a disk that is held to a few megabytes a second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmark_page import heading, table
from cgroups import control_group
from page_cache import drop_pages
from recall import record

from expert_worker.lookahead.trace import write_trace
from protocol.model import Model
from protocol.stock import Stock

HERE = Path(__file__).parent
GIB = 1 << 30
BASE_GIB = 0.8
"""For everything but experts: dense weights, caches, and interpreters of three or four processes."""
RUN_S = 500.0
PROMPT = (2132, 572, 279, 1850, 315)
"""Ids that any model has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to get at experts."""

    name: str
    source: str = ""
    """Empty for llama.cpp."""
    lookahead: str = "off"


WAYS = (
    Way(name="mapped", source="mapped"),
    Way(name="mapped, lookahead", source="mapped", lookahead="on"),
    Way(name="mapped, oracle", source="mapped", lookahead="oracle"),
    Way(name="direct", source="direct"),
    Way(name="direct, lookahead", source="direct", lookahead="on"),
    Way(name="direct, oracle", source="direct", lookahead="oracle"),
    Way(name="copies and mapped", source="copies"),
    Way(name="copies and mapped, lookahead", source="copies", lookahead="on"),
    Way(name="llama.cpp"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Little memory, and perhaps a slow disk."""

    part: int
    """Per cent of the experts' bytes for which there is room."""
    mbps: int
    """Megabytes a second that the disk gives at most; 0 is what it can."""

    def __str__(self) -> str:
        return f"{self.part} %" + (f", disk of {self.mbps} MB/s" if self.mbps else "")


class Runner:
    """Runs one way in one place."""

    def __init__(self, options: argparse.Namespace, trace: Path) -> None:
        with Model.open(options.model) as model:
            self.expert_bytes = Stock.of(model.layout).bytes
        self._options = options
        self._trace = trace

    def __call__(self, way: Way, place: Place) -> dict[str, Any]:
        """What the side printed, with the most memory that was in use; `failed` says why there is nothing."""
        experts_gib = self.expert_bytes * place.part / 100 / GIB
        slow = {"read_bps": place.mbps * 10**6, "disk_of": self._options.model} if place.mbps else {}
        drop_pages(self._options.model)
        path = [str(HERE), str(HERE.parent / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        with control_group(memory=int((BASE_GIB + experts_gib) * GIB), **slow) as group:
            command, asked = self._command(way, experts_gib)
            done = group.run(command, timeout_s=RUN_S, asked=asked, env=environment)
            if done.returncode or group.oom_kills():
                return {"failed": f"exit {done.returncode}, {group.oom_kills()} killed: {done.stderr[-300:]}"}
            told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return told | {"peak": group.peak() / ((BASE_GIB + experts_gib) * GIB)}

    def _command(self, way: Way, experts_gib: float) -> tuple[list[str | Path], str]:
        options = self._options
        if not way.source:
            question = {"prompts": [PROMPT], "tokens": options.tokens, "threads": options.threads}
            side = [options.llama, "-P", HERE / "llama_side.py", "--model", options.model, "--context", "256"]
            return [*side, "--no-repack"], json.dumps(question) + "\n"
        side = [sys.executable, "-P", HERE / "tier_side.py", "--model", options.model, "--source", way.source]
        side += ["--threads", str(options.threads), "--tokens", str(options.tokens), "--lookahead", way.lookahead]
        side += ["--prompt-ids", ",".join(map(str, PROMPT))]
        side += ["--trace", self._trace] if way.lookahead == "oracle" else []
        side += [] if way.source == "mapped" else ["--ram-gib", f"{experts_gib * options.copied:.3f}"]
        return side, ""


def main() -> None:
    """Print a table for each place, as soon as it is measured."""
    options = _options()
    print(heading("Models larger than memory"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "used.npz"
        used, _, _ = record(options.model, [PROMPT], options.tokens, options.threads)
        write_trace(trace, {(one.step, one.layer): one.experts for one in used})
        run = Runner(options, trace)
        print(
            f"{options.model.name}, {run.expert_bytes / GIB:.2f} GiB of experts; room for a part of them and "
            f"{BASE_GIB} GiB more; {options.tokens} tokens after a prompt of a few, {options.rounds} rounds in turns, "
            "medians. *Stall* is what the worker waits for bytes that a message needs, per token, prompt included.\n"
        )
        for place in _places(options):
            _measure(run, place, options)


def _measure(run: Runner, place: Place, options: argparse.Namespace) -> None:
    ways = [way for way in WAYS if way.source or options.llama]
    ways = [way for way in ways if not options.ways or way.name in options.ways]
    found: dict[str, list[dict[str, Any]]] = {way.name: [] for way in ways}
    for number in range(options.rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            found[way.name].append(run(way, place))
            print(f"{place}, {way.name}: {found[way.name][-1]}", file=sys.stderr, flush=True)
    print(f"Room for {place}:\n")
    columns = ["way", "tokens/s", "to its off", "stall, ms a token", "read, MB a token", "hits", "useful hints", "peak"]
    print(table(columns, list(_rows(ways, found, options.tokens))), flush=True)
    answers = {str(one["ids"]) for way in ways if way.source for one in found[way.name] if "ids" in one}
    print(f"Different answers of ours: {len(answers)}.\n", flush=True)


def _rows(ways: Sequence[Way], found: dict[str, list[dict[str, Any]]], tokens: int) -> Iterator[list[object]]:
    for way in ways:
        good = [one for one in found[way.name] if "failed" not in one]
        if not good:
            yield [way.name, found[way.name][0]["failed"], "", "", "", "", "", ""]
            continue
        speeds = [_speed(one) for one in good]
        off = [_speed(one) for one in found[way.name.partition(",")[0]] if "failed" not in one]
        ratios = [mine / other for mine, other in zip(speeds, off, strict=False)]
        row: list[object] = [way.name, median(speeds), median(ratios) if way.lookahead != "off" else ""]
        if not way.source:
            yield [*row, "", "", "", "", median(one["peak"] for one in good)]
            continue
        tiers = [one["tiers"] for one in good]
        yield [
            *row,
            median(each["file_read_us"] / 1e3 / tokens for each in tiers),
            median(each["file_read_bytes"] / 1e6 / tokens for each in tiers),
            f"{median(_hits(each) for each in tiers):.0%}",
            f"{median(_useful(each) for each in tiers):.0%}" if way.lookahead != "off" else "",
            median(one["peak"] for one in good),
        ]


def _speed(told: dict[str, Any]) -> float:
    """Tokens a second of the decoding."""
    return float(told.get("decoded", len(told["ids"][0]) - 1) / told["decode_s"])


def _hits(tiers: dict[str, int]) -> float:
    near = tiers["copy_hits"] + tiers["cache_hits"]
    return near / max(1, near + tiers["file_reads"])


def _useful(tiers: dict[str, int]) -> float:
    return (tiers["hints_useful"] + tiers["hints_late"]) / max(1, tiers["hints_hinted"])


def _places(options: argparse.Namespace) -> Iterator[Place]:
    for part in options.parts:
        yield Place(part=part, mbps=0)
    if options.slow_mbps:
        yield Place(part=options.slow_part, mbps=options.slow_mbps)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", type=Path, required=True)
    add("--llama", type=Path, help="an interpreter that has llama-cpp-python")
    add("--parts", type=int, nargs="*", default=[25, 50, 75], help="per cent of the experts that there is room for")
    add("--copied", type=float, default=0.9, help="part of that room which slots and copies take")
    add("--slow-mbps", type=int, default=100, help="also on a disk of so many megabytes a second; 0: not")
    add("--slow-part", type=int, default=50)
    add("--ways", nargs="*", help="only these")
    add("--tokens", type=int, default=16)
    add("--threads", type=int, default=2)
    add("--rounds", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
