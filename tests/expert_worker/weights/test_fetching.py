"""Fetching goes on through everything but the end of what can be had, and then says which expert and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from open_cache import open_cache

import expert_worker.weights.fetching as fetching_module
from expert_worker.weights.cache import Cache, marks_path
from expert_worker.weights.fetching import Fetching
from expert_worker.weights.giving import Giving
from expert_worker.weights.marks import Marks
from protocol.bulk import WINDOW
from protocol.errors import ExpertError, RoomError
from protocol.messages import FetchPiece, Message, PieceBytes, PieceFailed
from protocol.model import Model

Change = Callable[[Message], Message | None]


class Line:
    """A connection to a weights process that is this very object; time passes while nothing comes."""

    dropped = 0

    def __init__(self, giving: Giving, clock: list[float], change: Change, most: list[int]) -> None:
        self._giving, self._clock, self._change, self._most = giving, clock, change, most
        self._waiting: deque[Message] = deque()

    def send(self, message: Message) -> bool:
        assert isinstance(message, FetchPiece)
        answer = self._giving.answer(message)
        assert answer is not None
        changed = self._change(answer)
        if changed is not None:
            self._waiting.append(changed)
        self._most[0] = max(self._most[0], len(self._waiting))
        return True

    def receive(self, timeout_s: float) -> Message | None:
        if self._waiting:
            return self._waiting.popleft()
        self._clock[0] += timeout_s
        return None

    def close(self, flush_s: float) -> None:
        self._waiting.clear()


class Desk:
    """A cache, and what fetches into it."""

    def __init__(self, tiny_model: Path, folder: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = tiny_model
        self.cache, _ = stack.enter_context(open_cache(tiny_model, folder))
        self.folder = folder
        self.clock = [0.0]
        self.change: Change = lambda message: message
        self.most = [0]
        self.dialled = 0
        giving = Giving(stack.enter_context(Model.open(tiny_model)))

        def dial(endpoint: str) -> Line:
            self.dialled += 1
            return Line(giving, self.clock, lambda message: self.change(message), self.most)

        monkeypatch.setattr(fetching_module.time, "monotonic", lambda: self.clock[0])
        self.fetching = Fetching(self.cache, "ipc://@there", giving.offer.fingerprint, dial)

    def bring(self, layer: int, *experts: int) -> int:
        """How many steps it took."""
        return sum(1 for _ in self.fetching.bring(layer, np.array(experts)))

    def is_sound(self, layer: int, *experts: int) -> bool:
        """Whether the cache says that it has these, and has them."""
        whole = np.fromfile(self.model, np.uint8)
        here = np.fromfile(self.folder / self.model.name, np.uint8)
        pieces = [self.cache.grid.piece(number) for number in self.cache.grid.of(layer, np.array(experts)).tolist()]
        same = (np.array_equal(whole[o : o + n], here[o : o + n]) for _, o, n in pieces)
        return not self.cache.missing(layer, np.array(experts)) and all(same)


@pytest.fixture
def desk(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with ExitStack() as stack:
        yield Desk(tiny_model, tmp_path / "cache", stack, monkeypatch)


def first_times(count: int, change: Change) -> Change:
    """So many messages are changed, others are not."""
    left = iter(range(count))
    return lambda message: message if next(left, None) is None else change(message)


def damaged(message: Message) -> Message:
    assert isinstance(message, PieceBytes)
    data = message.data.copy()
    data[0] ^= 128
    return replace(message, data=data)


def shortened(message: Message) -> Message:
    assert isinstance(message, PieceBytes)
    return replace(message, data=message.data[1:])


def lost(message: Message) -> None:
    return None


def test_what_is_missing_is_fetched_and_nothing_twice(desk: Desk) -> None:
    desk.bring(1, 0, 3)
    assert desk.is_sound(1, 0, 3)
    assert not desk.is_sound(1, 1)
    taken = desk.fetching.counts["fetched_bytes"]
    desk.bring(1, 0, 3)
    assert desk.fetching.counts["fetched_bytes"] == taken
    assert desk.dialled == 1  # what is there needs no connection
    desk.bring(1, 0, 1, 2, 3)
    assert desk.is_sound(1, 0, 1, 2, 3)
    assert desk.fetching.counts["fetched_bytes"] == 2 * taken
    assert desk.most[0] <= WINDOW


@pytest.mark.parametrize("change", [damaged, shortened])
def test_a_damaged_piece_is_asked_for_again(change: Change, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.change = first_times(2, change)
    desk.bring(0, 1, 2)
    assert desk.is_sound(0, 1, 2)
    assert desk.fetching.counts["fetched_damaged"] == 2
    assert "layer 0, expert 1: a piece of its gate" in caplog.text
    assert "came damaged from ipc://@there" in caplog.text


def test_a_piece_that_stays_damaged_is_an_error_by_name_and_nothing_of_it_is_kept(desk: Desk) -> None:
    desk.bring(0, 0)
    desk.change = damaged
    with pytest.raises(ExpertError, match=r"layer 2, expert 3: the weights of its gate cannot .* damaged 3 times from"):
        desk.bring(2, 3)
    assert len(desk.cache.missing(2, np.array([3]))) == 3
    assert desk.is_sound(0, 0)


def test_what_was_lost_on_the_way_is_asked_for_again(desk: Desk) -> None:
    desk.change = first_times(5, lost)
    desk.bring(0, 1, 2, 3)
    assert desk.is_sound(0, 1, 2, 3)
    assert desk.dialled == 2
    assert desk.clock[0] >= fetching_module.ASK_AGAIN_S


def test_nothing_at_all_is_an_error_after_a_while(desk: Desk) -> None:
    desk.change = lost
    with pytest.raises(ExpertError, match="nothing has come from ipc://@there for 60 s"):
        desk.bring(0, 1)
    assert 60 <= desk.clock[0] < 62
    assert desk.dialled == 12


def test_time_in_which_nobody_looked_does_not_count(desk: Desk) -> None:
    desk.change = lost
    steps = desk.fetching.bring(0, np.array([1]))
    next(steps)
    desk.clock[0] += 1000  # stopped
    next(steps)
    desk.change = lambda message: message
    assert sum(1 for _ in steps) > 0
    assert desk.is_sound(0, 1)


def test_a_refusal_is_an_error_with_its_reason(desk: Desk) -> None:
    desk.change = lambda message: PieceFailed(file=message.file, offset=message.offset, reason="model file m changed")  # type: ignore[attr-defined]
    with pytest.raises(ExpertError, match="ipc://@there has not got it: model file m changed"):
        desk.bring(0, 1)


def test_what_came_before_a_failure_or_another_assignment_is_kept(desk: Desk) -> None:
    steps = desk.fetching.bring(0, np.arange(4))
    for _ in range(4):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    missing = len(desk.cache.missing(0, np.arange(4)))
    assert missing < 12
    desk.bring(0, *range(4))
    assert desk.is_sound(0, *range(4))
    assert desk.fetching.counts["fetched_damaged"] == 0


def test_what_another_process_fetches_is_waited_for(desk: Desk) -> None:
    numbers = desk.cache.grid.of(0, np.array([1])).tolist()
    other = Cache(desk_model := Model.open(desk.folder / desk.model.name, filling=True))
    assert all(other.claim(number) for number in numbers)
    steps = desk.fetching.bring(0, np.array([0, 1]))
    for _ in range(8):
        next(steps)
    assert desk.is_sound(0, 0)  # committed, for the other may wait for it
    for number in numbers:
        piece = other.grid.piece(number)
        other.write(number, np.fromfile(desk.model, np.uint8, piece.bytes, offset=piece.offset))
    other.commit()
    taken = desk.fetching.counts["fetched_bytes"]
    list(steps)
    assert desk.is_sound(0, 0, 1)
    assert desk.fetching.counts["fetched_bytes"] == taken
    other.close()
    desk_model.close()


@pytest.mark.parametrize("ends", [False, True])
def test_what_another_process_began_and_does_not_end_is_fetched_here(ends: bool, desk: Desk) -> None:
    other = Marks(marks_path(desk.folder), desk.cache.grid.count)
    assert all(other.claim(number) for number in desk.cache.grid.of(0, np.array([1])).tolist())
    steps = desk.fetching.bring(0, np.array([0, 1]))
    for _ in range(8):
        next(steps)
    if ends:
        other.close()
    began = desk.clock[0]
    list(steps)
    assert desk.is_sound(0, 0, 1)
    assert (desk.clock[0] - began >= fetching_module.OTHERS_S - 1) == (not ends)
    other.close()


def test_room_is_looked_at_before_anything_is_fetched(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = np.zeros((4, 16), np.uint8)
    wanted[0, :2] = 1
    desk.fetching.make_room(wanted)
    left = desk.fetching.counts["fetch_left_bytes"]
    desk.bring(0, 0)
    assert desk.fetching.counts["fetch_left_bytes"] == left // 2

    def refuse(needed: int) -> None:
        raise RoomError(f"{needed} bytes are needed")

    monkeypatch.setattr(desk.cache, "check_room", refuse)
    with pytest.raises(RoomError, match=f"{left // 2} bytes are needed"):
        desk.fetching.make_room(wanted)
    assert desk.dialled == 1
