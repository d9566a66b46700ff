"""The lookahead loop over queues: the newest input answered by a hint, session after session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import pytest
from message_examples import beat, layer_input, plain
from queue_lines import WITHIN_S, QueueLine

from expert_worker.lookahead.loop import Lookahead, rows_of
from protocol.holder.holdings import Holdings
from protocol.holder.serve import Desk, Leave, Orders, Progress
from protocol.messages import F32, I32, Message, Warm

pytestmark = pytest.mark.timeout(60)

WIDTH = 64
L = TypeVar("L", bound=QueueLine)
BYE = Leave(code=0, reason="test")


class Hints(QueueLine):
    """Where hints go; whether anybody wants them is up to the test."""

    is_wanted = True

    def wanted(self) -> bool:
        return self.is_wanted


class Predicting:
    """Names one expert: the layer's number. It can be held up."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, tuple[int, ...]]] = []
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.may_end.set()

    def predict(self, step: int, layer: int, rows: F32) -> I32:
        self.seen.append((step, layer, rows.shape))
        self.begun.release()
        assert self.may_end.wait(WITHIN_S)
        return np.array([layer], np.int32)


class Loop:
    """The loop in a thread."""

    def __init__(self) -> None:
        self.orders, self.progress, self.predicting = Orders(), Progress(), Predicting()
        self.inputs: dict[str, QueueLine] = {}
        self.hints: dict[str, Hints] = {}
        self.left: Leave | None = None
        how = Lookahead(
            subscribe=lambda endpoint: self._opened(self.inputs.setdefault(endpoint, QueueLine())),
            publish=lambda session: self._opened(self.hints.setdefault(session, Hints())),
            predictor=self.predicting,
            width=WIDTH,
        )
        self._thread = threading.Thread(target=lambda: setattr(self, "left", how.run(self.orders, self.progress)))
        self._thread.start()

    @staticmethod
    @contextmanager
    def _opened(line: L) -> Iterator[L]:
        yield line
        line.close(0)

    def desk(self, session: str = "s1") -> tuple[QueueLine, Hints]:
        """Follow a session."""
        inputs, hints = (
            self.inputs.setdefault(f"inputs-{session}", QueueLine()),
            self.hints.setdefault(session, Hints()),
        )
        self.orders.give(Desk(session=session, token="t", work="w", holdings=Holdings(), inputs=f"inputs-{session}"))
        return inputs, hints

    def end(self) -> None:
        self.orders.give(BYE)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.predicting.may_end.set()
    loop.end()
    assert loop.left == BYE


def hint(message: Message) -> tuple[str, int, int, list[int]]:
    assert isinstance(message, Warm)
    return message.session, message.step, message.layer, message.experts.tolist()


def test_an_input_is_answered_by_a_hint_for_the_next_layer(loop: Loop) -> None:
    inputs, hints = loop.desk()
    inputs.tell(layer_input(3, step=5, layer=2))
    assert hint(hints.told()) == ("s1", 5, 3, [2])
    inputs.tell(layer_input(step=5, layer=4, **plain(np.ones((2, WIDTH), np.float32))))
    assert hint(hints.told()) == ("s1", 5, 5, [4])
    assert loop.predicting.seen == [(5, 2, (3, WIDTH)), (5, 4, (2, WIDTH))]
    loop.end()
    assert (loop.progress.step, loop.progress.layer) == (5, 4)
    assert (loop.progress.calls, loop.progress.entries) == (2, 2)


def test_a_slow_prediction_is_not_told_when_its_layer_has_begun(loop: Loop) -> None:
    inputs, hints = loop.desk()
    loop.predicting.may_end.clear()
    inputs.tell(layer_input(step=1, layer=0))
    assert loop.predicting.begun.acquire(timeout=WITHIN_S)
    inputs.tell(*(layer_input(step=1, layer=layer) for layer in (1, 2, 3)))
    loop.predicting.may_end.set()
    assert hint(hints.told()) == ("s1", 1, 4, [3])
    assert [seen[:2] for seen in loop.predicting.seen] == [(1, 0), (1, 3)]


def test_nothing_is_told_to_nobody(loop: Loop) -> None:
    inputs, hints = loop.desk()
    hints.is_wanted = False
    inputs.tell(layer_input(step=1, layer=0))
    assert loop.predicting.begun.acquire(timeout=WITHIN_S)
    hints.is_wanted = True
    inputs.tell(layer_input(step=1, layer=1))
    heard = [hint(hints.told())]
    if heard[0][2] == 1:  # it looked after the change
        heard.append(hint(hints.told()))
    assert heard[-1] == ("s1", 1, 2, [1])


def test_another_session_has_sockets_of_its_own(loop: Loop) -> None:
    inputs, hints = loop.desk("s1")
    inputs.tell(layer_input(step=9, layer=0))
    hints.told()
    other_inputs, other_hints = loop.desk("s2")
    other_inputs.tell(beat(), layer_input(step=0, layer=0), layer_input(step=0, layer=1, session="s2"))
    assert hint(other_hints.told()) == ("s2", 0, 2, [1])
    assert inputs.closed
    assert hints.closed
    loop.end()
    assert loop.progress.misdirected == 2


def test_rows_are_what_the_codes_stand_for() -> None:
    message = layer_input(3, WIDTH)
    expected = message.codes.astype(np.float32) * np.repeat(message.scales, 32, axis=1)
    np.testing.assert_array_equal(rows_of(message, WIDTH), expected)
    values = np.linspace(-1, 1, 2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)
    np.testing.assert_array_equal(rows_of(layer_input(**plain(values)), WIDTH), values)
    assert rows_of(message, 2 * WIDTH).shape == (0, 2 * WIDTH)
    with np.errstate(all="raise"):
        damaged = np.full((1, 2), np.nan, np.float32)
        assert np.isnan(rows_of(layer_input(1, scales=damaged), WIDTH)).all()
