"""What hints were worth: every one is scored, and layers whose hints do not pay get none for a while. Pure.

A hint names experts of a layer that a worker will be asked for soon. What becomes of one:

- *useful*: asked for, and its bytes were there by then; they were not when the hint came;
- *late*: asked for while its bytes were still being read;
- *wasted*: not asked for by that layer's next message, or only after more than HORIZON layers;
- *harmful*, besides: reading it displaced an expert that was then asked for and missing.

An expert that is near anyway is no hint. Times are the caller's, in seconds of any one clock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from expert_worker.trial import Trial
from protocol.messages import I32, U8

HORIZON = 3
"""Layer changes after which a hint is no longer the reason why bytes are there."""
MAX_DISPLACED = 4096
"""Experts remembered as displaced, the latest ones."""
JUDGED = 64
"""Hints of a layer that are scored before it is judged: a few tokens' worth."""
WASTE = 0.5
"""Cost of a wasted read in reads: whoever comes while it is under way waits for half of it on average."""
FIRST_PAUSE, LONGEST_PAUSE = 64, 8192
"""Messages of a layer for which it gets no hints: the first time, twice as many the next time in a row, and at most."""


@dataclass(slots=True, kw_only=True)
class Score:
    """Hints of one layer, or all, by what became of them."""

    hinted: int = 0
    """Experts that were named and not near."""
    useful: int = 0
    late: int = 0
    wasted: int = 0
    harmful: int = 0
    stale: int = 0
    """Named when their message had come already; never read."""
    gated: int = 0
    """Named while hints were off; never read."""
    missed: int = 0
    """Asked for, missing, and not hinted at."""
    closed: int = 0
    """Times that hints were turned off."""

    def add(self, more: Score) -> None:
        """Count these too."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(more, one.name))


@dataclass(slots=True, kw_only=True)
class Gate:
    """Whether a layer gets hints: they are turned off where they cost more than they save, and tried again later.

    All counted in reads of one expert that demand does not wait for, or waits for in vain.
    """

    open: bool = True
    _saved: float = 0.0
    _lost: float = 0.0
    _judged: int = 0
    _pause: int = FIRST_PAUSE
    _left: int = 0

    def score(self, saved: float, lost: float) -> bool:
        """One hint has been scored; True if that turns hints off."""
        self._saved, self._lost, self._judged = self._saved + saved, self._lost + lost, self._judged + 1
        if not self.open or self._judged < JUDGED:
            return False
        pays = self._saved >= self._lost
        self._saved = self._lost = 0.0
        self._judged = 0
        if pays:
            self._pause = FIRST_PAUSE
            return False
        self.open, self._left = False, self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return True

    def message(self) -> None:
        """A message of the layer has come: one less to wait for."""
        if not self.open:
            self._left -= 1
            if self._left <= 0:
                self.open, self._saved, self._lost, self._judged = True, 0.0, 0.0, 0


@dataclass(frozen=True, slots=True)
class _Hint:
    """One expert that was named, and not asked for yet."""

    step: int
    epoch: int
    at: float


@dataclass(slots=True, kw_only=True)
class _Layer:
    score: Score = field(default_factory=Score)
    gate: Gate = field(default_factory=Gate)
    pending: dict[int, _Hint] = field(default_factory=dict)
    step: int = -1
    """Of the layer's latest message."""


class HintBook:
    """All hints of one worker. From any thread: the one that hears hints and the one that is asked."""

    def __init__(self) -> None:
        self._layers: dict[int, _Layer] = {}
        self._displaced: dict[tuple[int, int], int] = {}  # by whose hints' layer
        self._order: deque[tuple[int, int]] = deque()
        self._epoch = 0
        self._latest = (-1, -1)
        self._late_s = 0.0
        self._lock = threading.Lock()
        self.trial = Trial()

    @property
    def begun(self) -> bool:
        """Whether any hint has come: before that there is nothing to score."""
        return bool(self._layers)

    def new_session(self) -> None:
        """Steps are numbered anew. What was named and not asked for is forgotten; scores and gates stay."""
        with self._lock:
            for one in self._layers.values():
                one.pending.clear()
                one.step = -1
            self._latest = (-1, -1)

    def refuse(self, layer: int, count: int) -> None:
        """A hint of so many experts is not followed, since hints do not pay at all now."""
        with self._lock:
            self._layer(layer).score.gated += count

    def want(self, layer: int, experts: I32, missing: U8, step: int, now: float) -> I32:
        """A hint (n,) came: which of the experts to have read now.

        `missing` (n,) is 1 for those whose bytes are not near, and not on their way.
        """
        with self._lock:
            of = self._layer(layer)
            named = [expert for expert, far in zip(experts.tolist(), missing.tolist(), strict=True) if far]
            if step <= of.step:
                of.score.stale += len(named)
                return experts[:0]
            if not of.gate.open:
                of.score.gated += len(named)
                return experts[:0]
            fresh = [expert for expert in named if expert not in of.pending]
            of.score.hinted += len(fresh)
            of.pending.update(dict.fromkeys(fresh, _Hint(step, self._epoch, now)))
            return np.array(fresh, np.int32)

    def came(self, layer: int, step: int) -> None:
        """A layer's message has come: hints for it are too late from now on."""
        with self._lock:
            self._layer(layer).step = step

    def is_past(self, layer: int, step: int) -> bool:
        """Whether a hint for this layer of a step comes too late by now."""
        of = self._layers.get(layer)
        return of is not None and step <= of.step

    def asked(self, layer: int, experts: I32, missing: U8, step: int, now: float, *, share: float = 1.0) -> None:
        """A layer's message (n,) has come, and nothing has been read for it yet; `missing` as in `want`, or on its way.

        Scores the layer's hints. `share` is how much of what the layer uses this worker was asked for, if it is one of
        a team: others may have been asked for what seems wasted here, and what is read for one is read for all.
        """
        with self._lock:
            if (step, layer) != self._latest:
                self._epoch += 1
                self._latest = (step, layer)
            of = self._layer(layer)
            of.step = step
            of.gate.message()
            far = dict(zip(experts.tolist(), missing.tolist(), strict=True))
            due = {expert: hint for expert, hint in of.pending.items() if hint.step <= step or expert in far}
            for expert, hint in due.items():
                del of.pending[expert]
                self._settle(of, hint, far.get(expert), now, WASTE * share)
            for expert, is_far in far.items():
                by = self._displaced.pop((layer, expert), None)
                if is_far and expert not in due:
                    of.score.missed += 1
                    if by is not None:
                        self._harm(by)

    def displaced(self, layer: int, expert: int, by_layer: int) -> None:
        """Reading a hint for `by_layer` took the place of this expert, which nobody had asked to go."""
        with self._lock:
            if (layer, expert) not in self._displaced:
                self._order.append((layer, expert))
            self._displaced[layer, expert] = by_layer
            while len(self._order) > MAX_DISPLACED:
                self._displaced.pop(self._order.popleft(), None)

    def stats(self) -> dict[str, int]:
        """Totals of all layers; `off` is how many get no hints now, `late_us` how long before they were asked for
        late ones had been named, together; `following` is 1 while hints are followed at all (`Trial`)."""
        with self._lock:
            total = Score()
            for one in self._layers.values():
                total.add(one.score)
            off = sum(not one.gate.open for one in self._layers.values())
            following = {"following": int(self.trial.on)}
            return _plain(total) | {"off": off, "late_us": int(self._late_s * 1e6)} | following

    def by_layer(self) -> dict[int, dict[str, int]]:
        """The same of each layer; `off` is 1 where it gets no hints now."""
        with self._lock:
            return {
                layer: _plain(one.score) | {"off": int(not one.gate.open)}
                for layer, one in sorted(self._layers.items())
            }

    # --- with the lock held -----------------------------------------------------------------------------------

    def _layer(self, layer: int) -> _Layer:
        return self._layers.setdefault(layer, _Layer())

    def _settle(self, of: _Layer, hint: _Hint, far: int | None, now: float, waste: float) -> None:
        """`far` is whether its bytes are missing now that it is asked for; None if it is not."""
        if far is None or self._epoch - hint.epoch > HORIZON:
            of.score.wasted += 1
            self._judge(of, 0.0, waste)
        elif far:
            of.score.late += 1
            self._late_s += max(0.0, now - hint.at)
            self._judge(of, 0.5, 0.0)  # part of the read was done meanwhile
        else:
            of.score.useful += 1
            self._judge(of, 1.0, 0.0)

    def _harm(self, by_layer: int) -> None:
        of = self._layer(by_layer)
        of.score.harmful += 1
        self._judge(of, 0.0, 1.0)

    def _judge(self, of: _Layer, saved: float, lost: float) -> None:
        of.score.closed += of.gate.score(saved, lost)


def _plain(score: Score) -> dict[str, int]:
    names: Sequence[str] = [one.name for one in fields(score)]
    return {name: getattr(score, name) for name in names}
