"""Fetching goes on through everything but the end of what can be had, and then says which expert and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from message_examples import KEY
from open_cache import open_cache

import expert_worker.weights.fetching as fetching_module
import expert_worker.weights.givers as givers_module
from expert_worker.weights.cache import BLOCK_BYTES, Cache, marks_path
from expert_worker.weights.fetching import Fetching
from expert_worker.weights.giving import Giving
from expert_worker.weights.marks import Marks
from expert_worker.weights.place import Place
from protocol.bulk import WINDOW
from protocol.errors import ConfigError, ExpertError, RoomError
from protocol.messages import U8, Digests, Message, OfferPieces, PieceBytes, PieceFailed
from protocol.model import Model

Change = Callable[[Message], Message | None]


class Line:
    """A connection to a weights process that is this very object; time passes while nothing comes."""

    dropped = 0

    def __init__(self, giver: Giver) -> None:
        self._giver = giver
        self._waiting: deque[Message] = deque()
        self._next = 0.0

    def send(self, message: Message) -> bool:
        answer = self._giver.giving.answer(message)
        if answer is not None and (changed := self._giver.change(answer)) is not None:
            self._waiting.append(changed)
            self._giver.given += isinstance(changed, PieceBytes)
        self._giver.most = max(self._giver.most, len(self._waiting))
        return True

    def receive(self, timeout_s: float) -> Message | None:
        if self._giver.shut:
            raise ConfigError(self._giver.shut)
        if self._waiting and self._giver.clock[0] >= self._next:
            self._next = self._giver.clock[0] + self._giver.every_s
            return self._waiting.popleft()
        self._giver.clock[0] += timeout_s
        return None

    def close(self, flush_s: float) -> None:
        self._waiting.clear()


@dataclass(eq=False)
class Giver:
    """A weights process, and what becomes of its answers."""

    giving: Giving
    clock: list[float]
    change: Change = lambda message: message
    given: int = 0
    most: int = 0
    dialled: int = 0
    shut: str = ""
    every_s: float = 0.0
    """Time between two messages of its own."""


CENTRE = Place("ipc://@there")


class Desk:
    """A cache, and what fetches into it."""

    def __init__(self, tiny_model: Path, folder: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = tiny_model
        self._stack = stack
        self.cache, _ = stack.enter_context(open_cache(tiny_model, folder / "cache"))
        self.folder = folder / "cache"
        self.clock = [0.0]
        giving = Giving(stack.enter_context(Model.open(tiny_model)), clock=lambda: self.clock[0])
        self.centre = Giver(giving, self.clock)
        self.givers = {CENTRE: self.centre}

        def dial(place: Place) -> Line:
            if place not in self.givers:
                raise ConfigError("there is nobody")
            self.givers[place].dialled += 1
            return Line(self.givers[place])

        monkeypatch.setattr(fetching_module.time, "monotonic", lambda: self.clock[0])
        self.fetching = Fetching(self.cache, CENTRE, giving.offer.fingerprint, dial)

    def other(self, name: str, layer: int, *experts: int) -> Giver:
        """One more, whose cache has these, and says so."""
        folder = self.folder.with_name(name)
        cache, filling = self._stack.enter_context(open_cache(self.model, folder))
        for number in cache.grid.of(layer, np.array(experts)).tolist():
            piece = cache.grid.piece(number)
            cache.write(number, np.fromfile(self.model, np.uint8, piece.bytes, offset=piece.offset))
        cache.commit()
        made = self.givers[Place(f"ipc://@{name}", KEY)] = Giver(Giving(filling, cache), self.clock)
        self.offer(f"ipc://@{name}", cache.there())
        return made

    def offer(self, endpoint: str, have: U8) -> None:
        """Somebody says that he has these."""
        fingerprint = self.centre.giving.offer.fingerprint
        offer = OfferPieces(fingerprint=fingerprint, endpoint=endpoint, key=KEY, have=have)
        assert self.centre.giving.answer(offer) is None

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


def forged(message: Message) -> Message:
    """Damaged, with the sum of what it is."""
    made = damaged(message)
    assert isinstance(made, PieceBytes)
    return replace(made, sha256=sha256(made.data.tobytes()).hexdigest())


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


def first_times(count: int, change: Change) -> Change:
    """So many pieces are changed, others are not."""
    left = iter(range(count))
    return lambda message: (
        message if not isinstance(message, PieceBytes) or next(left, None) is None else change(message)
    )


def test_what_is_missing_is_fetched_and_nothing_twice(desk: Desk) -> None:
    desk.bring(1, 0, 3)
    assert desk.is_sound(1, 0, 3)
    assert not desk.is_sound(1, 1)
    taken, dialled = desk.fetching.counts["fetched_bytes"], desk.centre.dialled
    desk.bring(1, 0, 3)
    assert desk.fetching.counts["fetched_bytes"] == taken
    assert desk.centre.dialled == dialled  # what is there needs no connection
    desk.bring(1, 0, 1, 2, 3)
    assert desk.is_sound(1, 0, 1, 2, 3)
    assert desk.fetching.counts["fetched_bytes"] == 2 * taken
    assert desk.centre.most <= WINDOW


@pytest.mark.parametrize("change", [damaged, shortened])
def test_a_damaged_piece_is_asked_for_again(change: Change, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.centre.change = first_times(2, change)
    desk.bring(0, 1, 2)
    assert desk.is_sound(0, 1, 2)
    assert desk.fetching.counts["fetched_damaged"] == 2
    assert "layer 0, expert 1: a piece of its gate" in caplog.text
    assert "came damaged from ipc://@there" in caplog.text


def test_a_piece_that_stays_damaged_is_an_error_by_name_and_nothing_of_it_is_kept(desk: Desk) -> None:
    desk.bring(0, 0)
    desk.centre.change = first_times(100, damaged)
    with pytest.raises(ExpertError, match=r"layer 2, expert 3: the weights of its gate cannot .* damaged 3 times from"):
        desk.bring(2, 3)
    assert len(desk.cache.missing(2, np.array([3]))) == 3
    assert desk.is_sound(0, 0)


def test_what_was_lost_on_the_way_is_asked_for_again(desk: Desk) -> None:
    desk.centre.change = first_times(5, lost)
    desk.bring(0, 1, 2, 3)
    assert desk.is_sound(0, 1, 2, 3)
    assert desk.clock[0] >= givers_module.SILENT_S


def test_nothing_at_all_is_an_error_after_a_while(desk: Desk) -> None:
    desk.centre.change = lost
    with pytest.raises(ExpertError, match="nothing has come from ipc://@there for 60 s"):
        desk.bring(0, 1)
    assert 60 <= desk.clock[0] < 62


def test_time_in_which_nobody_looked_does_not_count(desk: Desk) -> None:
    desk.centre.change = lost
    steps = desk.fetching.bring(0, np.array([1]))
    next(steps)
    desk.clock[0] += 1000  # stopped
    next(steps)
    desk.centre.change = lambda message: message
    assert sum(1 for _ in steps) > 0
    assert desk.is_sound(0, 1)


def test_a_refusal_is_an_error_with_its_reason(desk: Desk) -> None:
    desk.centre.change = first_times(
        100, lambda message: PieceFailed(file=0, offset=getattr(message, "offset", 0), reason="model file m changed")
    )
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
    with pytest.raises(RoomError, match=f"{left // 2 + 3 * BLOCK_BYTES} bytes are needed"):
        desk.fetching.make_room(wanted)
    assert desk.centre.given == 3


def test_what_others_have_comes_from_them(desk: Desk) -> None:
    one, two = desk.other("one", 1, *range(12)), desk.other("two", 1, *range(6, 14))
    desk.bring(0, 0)  # by now it knows of them
    desk.bring(1, *range(16))
    assert desk.is_sound(1, *range(16))
    assert one.given + two.given + desk.centre.given == 3 + 48
    grid = desk.cache.grid
    each = sum(grid.piece(number).bytes for number in grid.of(1, np.array([0])).tolist()) // 3
    assert desk.fetching.counts["fetched_from_caches"] == (one.given + two.given) * each
    assert desk.fetching.counts["fetched_bytes"] == 51 * each
    assert min(one.given, two.given) >= 6
    assert desk.centre.given < 3 + 6 + 2 * WINDOW


def only_others(desk: Desk) -> None:
    """From the beginning: what others have is asked of them before anything is asked of the centre."""
    desk.fetching.counts["fetch_left_bytes"] = 1 << 30  # connections are kept from one layer to the next
    desk.bring(0, 0)
    desk.centre.given = 0


@pytest.mark.parametrize("change", [damaged, forged, shortened])
def test_what_another_damages_or_forges_comes_from_elsewhere_and_is_named(
    change: Change, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    other = desk.other("other", 1, 0, 1, 2, 3)
    only_others(desk)
    other.change = first_times(2, change)
    desk.bring(1, 0, 1, 2, 3)
    assert desk.is_sound(1, 0, 1, 2, 3)
    assert (other.given, desk.centre.given) == (12, 2)
    assert "came damaged from ipc://@other" in caplog.text


def test_who_damages_much_is_asked_no_more(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    other = desk.other("other", 1, *range(16))
    only_others(desk)
    other.change = damaged
    desk.bring(1, *range(16))
    assert desk.is_sound(1, *range(16))
    assert desk.fetching.counts["fetched_damaged"] == 3
    assert desk.centre.given == 48
    assert "ipc://@other gives damaged pieces, and is asked for no more" in caplog.text


def test_who_falls_silent_is_asked_no_more(desk: Desk) -> None:
    other = desk.other("other", 1, 0, 1, 2, 3)
    only_others(desk)
    other.change = lost
    desk.bring(1, 0, 1, 2, 3)
    assert desk.is_sound(1, 0, 1, 2, 3)
    assert desk.centre.given == 12
    assert givers_module.SILENT_S <= desk.clock[0] < 2 * givers_module.SILENT_S


@pytest.mark.parametrize("each_s", [1.0, 2.0, 4.9])
def test_who_drips_is_asked_no_more(each_s: float, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    other = desk.other("other", 1, *range(16))
    only_others(desk)
    other.every_s = each_s
    began = desk.clock[0]
    desk.bring(1, *range(16))
    assert desk.is_sound(1, *range(16))
    drips = each_s * WINDOW > givers_module.SLOW_S
    assert (desk.centre.given > 0) == drips
    assert ("ipc://@other gives slowly; others are asked" in caplog.text) == drips
    assert desk.clock[0] - began < (2 * givers_module.SLOW_S if drips else 60 * each_s)


def test_who_does_not_let_in_is_asked_no_more(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    other = desk.other("other", 1, *range(8))
    only_others(desk)
    other.shut = "that key is not allowed"
    desk.bring(1, *range(8))
    assert desk.is_sound(1, *range(8))
    assert (desk.centre.given, other.dialled) == (24, 1)
    assert caplog.messages.count("ipc://@other is asked no more: that key is not allowed") == 1
    assert desk.fetching.counts["fetched_from_caches"] == 0


def test_who_cannot_be_dialled_is_named_and_not_asked(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.offer("tcp://10.0.0.9:7700", np.ones((4, 16), np.uint8))
    only_others(desk)
    desk.bring(1, 0, 1)
    assert desk.is_sound(1, 0, 1)
    assert caplog.messages.count("tcp://10.0.0.9:7700 gives weights too, and is not asked: there is nobody") == 1


def test_who_names_givers_without_end_that_say_nothing_holds_nobody_up_for_long(desk: Desk) -> None:
    names = iter(range(10**6))

    def name_some() -> None:
        for _ in range(5):
            name = f"ipc://@{next(names)}"
            desk.givers[Place(name, KEY)] = replace(desk.centre, change=lost)
            desk.offer(name, np.ones((4, 16), np.uint8))

    name_some()
    only_others(desk)
    began = named_at = desk.clock[0]
    for _ in desk.fetching.bring(1, np.arange(16)):
        if desk.clock[0] - named_at >= 1.0:
            name_some()
            named_at = desk.clock[0]
    assert desk.is_sound(1, *range(16))
    assert desk.clock[0] - began < 4 * givers_module.SILENT_S


def test_who_has_not_what_he_says_is_not_asked_for_that_again(desk: Desk) -> None:
    other = desk.other("other", 1, 0, 1)
    only_others(desk)
    other.change = first_times(2, lambda message: PieceFailed(file=0, offset=message.offset, reason="gone"))  # type: ignore[attr-defined]
    desk.bring(1, 0, 1)
    assert desk.is_sound(1, 0, 1)
    assert desk.centre.given == 2
    assert desk.fetching.counts["fetched_damaged"] == 0


def test_lost_digests_are_asked_for_again(desk: Desk) -> None:
    other = desk.other("other", 1, 0, 1)
    only_others(desk)
    left = iter(range(1))
    desk.centre.change = lambda message: (
        None if isinstance(message, Digests) and next(left, None) is not None else message
    )
    desk.bring(1, 0, 1)
    assert desk.is_sound(1, 0, 1)
    assert (other.given, desk.centre.given) == (6, 0)
