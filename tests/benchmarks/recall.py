"""How many of the experts that a layer uses are named before, by each way to predict them: `recall.py [MODEL]`.

Texts are continued greedily in this process, and the inputs of all layers and the experts that their routers chose are
recorded. What a predictor is given is what a lookahead process would be: the first rows of a window, as they travel.
No figure here depends on the machine or its state.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from benchmark_page import heading, table

import native
from coordinator.choosing import choose
from coordinator.demo import demo_model
from coordinator.dense import DenseModel
from coordinator.dense_half import Rows, host_rows
from coordinator.engine import Chunk, Engine
from coordinator.local import LocalExperts
from coordinator.sampling import Sampling
from coordinator.sums import LayerSums
from expert_worker.bank import ExpertBank
from expert_worker.lookahead.loop import rows_of
from expert_worker.lookahead.predict import NO_EXPERTS, NextRouter, Popularity
from expert_worker.lookahead.routers import Routers
from expert_worker.lookahead.trace import write_trace
from protocol.messages import F32, I32, LOOKAHEAD_ROWS, MAX_ROWS, LayerInput
from protocol.model import Model

PROMPTS = (
    "In the beginning God created the heaven and the earth. And the earth was without form",
    "import os\nimport re\n\n\ndef read(path):\n    with open(path) as file:\n",
    "The :class:`list` type is a mutable sequence. It has the following methods:",
    "horse (noun): a solid-hoofed herbivorous quadruped domesticated since prehistoric times\n",
    "hacker: n. A person who enjoys exploring the details of programmable systems",
)
PHASES = ("prompt", "decode")
NO_SHARED = "no shared expert in this model"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Used:
    """One layer of one step."""

    step: int
    layer: int
    rows: F32
    """(rows, width): its input, as far as it would be published."""
    experts: I32
    """Distinct, ascending."""
    phase: str


class Recorder(LocalExperts):
    """Computes, and remembers what it was asked for."""

    def __init__(self, bank: ExpertBank) -> None:
        super().__init__(bank)
        self.layout = bank.layout
        self.phase = PHASES[0]
        self.used: list[Used] = []

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        self.used.append(
            Used(step=step, layer=layer, rows=self._published(layer, rows), experts=np.unique(ids), phase=self.phase)
        )
        super().begin_layer(step, layer, rows, ids, weights, sums)

    def _published(self, layer: int, rows: Rows) -> F32:
        here = host_rows(rows, self._quantised[layer])
        codes, scales, values = np.empty((0, 0), np.int8), np.empty((0, 0), np.float32), np.empty((0, 0), np.float32)
        if self._quantised[layer]:
            codes, scales = here.quantise()
        else:
            values = here.values()
        few = slice(LOOKAHEAD_ROWS)
        message = LayerInput(session="", step=0, layer=layer, codes=codes[few], scales=scales[few], values=values[few])
        return rows_of(message, self.layout.width).copy()


def record(path: Path, prompts: Sequence[Sequence[int]], tokens: int, threads: int) -> tuple[list[Used], Routers, int]:
    """What continuing each prompt by so many tokens used, the routers, and the model's experts."""
    pool = native.Pool(threads)
    with Model.open(path) as model, ExpertBank(model, pool) as bank:
        recorder = Recorder(bank)
        with Engine(model, recorder, DenseModel(model, pool, MAX_ROWS, "f16")) as engine:
            for prompt in prompts:
                ids = list(prompt)
                sequence = engine.new_sequence(ids, tokens)
                recorder.phase, chunk = PHASES[0], ids[:MAX_ROWS]
                for _ in range(tokens):
                    [logits] = engine.step([Chunk(sequence=sequence, ids=chunk)])
                    ids.append(choose(logits[-1], ids, Sampling(), len(ids)))
                    recorder.phase, chunk = PHASES[1], ids[-1:]
        routers = Routers.of(model)
        # Views of the file do not outlive it.
        kept = Routers(
            experts=routers.experts,
            chosen=routers.chosen,
            weights={layer: one.copy() for layer, one in routers.weights.items()},
            norms={layer: one.copy() for layer, one in routers.norms.items()},
        )
        return recorder.used, kept, model.geometry.experts


@dataclass(slots=True, kw_only=True)
class Hits:
    """Of one predictor."""

    found: int = 0
    used: int = 0
    named: int = 0

    def add(self, named: I32, used: I32) -> None:
        """One layer of one step."""
        self.found += len(np.intersect1d(named, used))
        self.used += len(used)
        self.named += len(named)

    @property
    def recall(self) -> float:
        return self.found / max(1, self.used)

    @property
    def precision(self) -> float:
        return self.found / max(1, self.named)


@dataclass(slots=True, kw_only=True, eq=False)
class Guess:
    """A way to predict, under a name: from the layer before, and from what was used earlier."""

    name: str
    predict: Callable[[Used, int], I32]
    """Takes the layer before, and the number of the layer."""
    learn: Callable[[Used], None] = lambda used: None
    hits: dict[tuple[str, int], Hits] = field(default_factory=lambda: defaultdict(Hits))

    def total(self, phase: str, layers: Iterable[int]) -> Hits:
        """Of some layers together."""
        parts = [self.hits[phase, layer] for layer in layers]
        return Hits(
            found=sum(one.found for one in parts),
            used=sum(one.used for one in parts),
            named=sum(one.named for one in parts),
        )


def guesses(routers: Routers) -> list[Guess]:
    """All that are compared."""
    last: dict[int, I32] = {}
    made = [Guess(name="previous step", predict=lambda before, layer: last.get(layer, NO_EXPERTS))]
    made[0].learn = lambda used: last.__setitem__(used.layer, used.experts)
    for margin in (0, 2):
        more = f" + {margin}" if margin else ""
        for rescaled, form in ((False, "as it is"), (True, "rescaled by norm weights")):
            router = NextRouter(routers, rescaled=rescaled, margin=margin)
            made.append(Guess(name=f"next router, k{more}, input {form}", predict=_of_layer(router.predict)))
        popular = Popularity(routers, margin)
        made.append(
            Guess(name=f"popularity, k{more}", predict=_favourites(popular), learn=_learning(popular)),
        )
    return made


def _of_layer(predict: Callable[[int, int, F32], I32]) -> Callable[[Used, int], I32]:
    return lambda before, layer: predict(before.step, before.layer, before.rows)


def _favourites(popular: Popularity) -> Callable[[Used, int], I32]:
    return lambda before, layer: popular.favourites(layer)


def _learning(popular: Popularity) -> Callable[[Used], None]:
    return lambda used: popular.learn(used.layer, used.experts)


def score(used: Sequence[Used], made: Sequence[Guess]) -> None:
    """Let all predict every layer that has one before it in its step."""
    for before, now in pairwise(used):
        if now.step == before.step:
            for guess in made:
                guess.hits[now.phase, now.layer].add(guess.predict(before, now.layer), now.experts)
        for guess in made:
            guess.learn(now)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; with --trace write what was used too."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("model", type=Path, nargs="?", default=None)
    add("--prompt", action="append", help="continue this text; may be given again  [default: five texts]")
    add("--tokens", type=int, default=200, help="of each continuation")
    add("--threads", type=int, default=1)
    add("--trace", type=Path, help="write what each step used, for `--predictor oracle`: of one prompt")
    options = parser.parse_args(arguments)
    path, texts = options.model or demo_model(), options.prompt or PROMPTS
    if options.trace is not None and len(texts) != 1:
        parser.error("--trace needs one --prompt: steps are numbered from a coordinator's start")
    from coordinator.tokenizer import Tokenizer  # which a machine that only records need not have

    with Model.open(path) as model:
        tokenizer = Tokenizer.of(model.files.metadata)
    prompts = [list(tokenizer.encode(text)) for text in texts]
    used, routers, experts = record(path, prompts, options.tokens, options.threads)
    if options.trace is not None:
        write_trace(options.trace, {(one.step, one.layer): one.experts for one in used})
    made, layers = guesses(routers), routers.layers[1:]
    score(used, made)
    print(heading(f"Recall of predictions: {path.name}"))
    print(f"{len(texts)} texts, {options.tokens} tokens each; {routers.chosen} of {experts} experts a row.")
    print(f"Of the first layer with experts nothing is predicted. With the shared expert added: {NO_SHARED}.\n")
    print(_overall(made, layers))
    for phase in PHASES:
        print(f"\nRecall by layer, {phase}:\n")
        rows = [[one.name, *(f"{one.hits[phase, layer].recall:.1%}" for layer in layers)] for one in made]
        print(table(["predictor", *map(str, layers)], rows))


def _overall(made: Sequence[Guess], layers: Sequence[int]) -> str:
    columns = ["predictor", *(f"{phase}: {what}" for phase in PHASES for what in ("recall", "precision", "named"))]
    rows = []
    for one in made:
        row = [one.name]
        for phase in PHASES:
            total = one.total(phase, layers)
            row += [f"{total.recall:.1%}", f"{total.precision:.1%}", str(total.named)]
        rows.append(row)
    return table(columns, rows)


if __name__ == "__main__":
    main()
