"""Answers with drafts and without, in turns on one cluster: how many were right, steps saved, tokens a second.

Tokens and digests of every pair must be equal. Steps hardly depend on the state of the machine, though not on it alone:
what a row more costs is measured, and decides how much is drafted. Speeds are those of the machine as it was.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark_page import GrowingTable, heading
from clusters import LiveCluster, live_cluster
from paired_figures import in_turn, spread

from coordinator.client import Client
from coordinator.demo import demo_model
from coordinator.sampling import Sampling
from coordinator.tokenizer import Tokenizer
from protocol.messages import Finished, Token
from protocol.model import Model

PROMPTS = {
    "imports": "import os\nimport re\nimport sys\nimport ",
    "list": "one (noun): a number\ntwo (noun): a number\nthree (noun): a number\n",
    "function": "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n\n    def test_sub(self):\n",
    "prose": "The horse ran across the field, because",
}
"""Texts that repeat themselves more or less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One answer."""

    digest: str
    ids: tuple[int, ...]
    steps: int
    drafted: int
    accepted: int
    speed: float
    """Tokens a second after the first."""


def ask(cluster: LiveCluster, prompt_ids: Sequence[int], tokens: int, sampling: Sampling, drafts: int) -> Run:
    """One answer of the cluster, with so many drafts a step at most."""
    answer: list[Token] = []
    with Client(cluster.endpoint) as client:
        client.greet(10.0, cluster.check)
        request = client.submit(prompt_ids, max_tokens=tokens, stop_ids=[], sampling=sampling, drafts=drafts)
        for event in client.events(request, cluster.check):
            if isinstance(event, Token):
                answer.append(event)
            elif isinstance(event, Finished):
                return Run(
                    digest=answer[-1].sha256_logits,
                    ids=tuple(token.id for token in answer),
                    speed=(len(answer) - 1) * 1e6 / event.decode_us,
                    **event.report["drafts"],
                )
    raise AssertionError("the last event is Finished")


def row(name: str, pairs: Sequence[tuple[Run, Run]], tokens: int) -> list[object]:
    """Of runs without and with drafts: medians, and the ratio of speeds within rounds."""
    without, drafting = zip(*pairs, strict=True)
    drafted, accepted = (sum(getattr(run, name) for run in drafting) for name in ("drafted", "accepted"))
    return [
        name,
        tokens - 1,
        statistics.median(run.steps for run in drafting),
        statistics.median(run.drafted for run in drafting),
        f"{accepted / drafted:.0%}" if drafted else "-",
        f"{statistics.median(run.speed for run in without):.3g}",
        f"{statistics.median(run.speed for run in drafting):.3g}",
        str(spread([on.speed / off.speed for off, on in pairs])),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=demo_model(), help="the demo model unless named")
    parser.add_argument("--random-prompts", action="store_true", help="ids in place of texts, for random weights")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    prompts = {"ids": list(range(7, 27))} if options.random_prompts else prompts_of(options.model)
    columns = ["prompt", "tokens", "steps", "drafted", "right", "tokens/s without", "with", "ratio"]
    for workers in options.workers:
        print(heading(f"Drafts, {options.model.name}, {workers} workers, temperature {options.temperature:g}"))
        with tempfile.TemporaryDirectory() as folder:
            settings = {"workers": workers, "coordinator_options": ["--threads", "2" if workers == 0 else "1"]}
            with live_cluster(options.model, Path(folder), **settings) as cluster:
                rows = GrowingTable(columns)
                for name, ids in prompts.items():
                    rows.add(measure(cluster, name, ids, options))


def prompts_of(model: Path) -> dict[str, list[int]]:
    """PROMPTS as ids."""
    with Model.open(model) as opened:
        tokenizer = Tokenizer.of(opened.files.metadata)
        return {name: tokenizer.encode(text) for name, text in PROMPTS.items()}


def measure(cluster: LiveCluster, name: str, prompt_ids: Sequence[int], options: argparse.Namespace) -> list[object]:
    """Pairs of runs, back and forth."""
    sampling, pairs = Sampling(temperature=options.temperature), []
    for number in range(-1, options.rounds):  # the first warms up
        order = in_turn([0, options.drafts], number)
        runs = {drafts: ask(cluster, prompt_ids, options.tokens, sampling, drafts) for drafts in order}
        off, on = runs[0], runs[options.drafts]
        assert (off.ids, off.digest) == (on.ids, on.digest), f"{name}: drafts changed the answer"
        if number >= 0:
            pairs.append((off, on))
    return row(name, pairs, options.tokens)


if __name__ == "__main__":
    main()
