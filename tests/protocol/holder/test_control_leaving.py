"""The control thread of a worker that is to leave, and what it tells of the compute loop meanwhile."""

from __future__ import annotations

import time

from control_thread import Worker, next_of

from protocol.holder.serve import Leave
from protocol.messages import Beat, BeatSeen, Drain, Stop, Stopped


def test_it_asks_and_works_on_until_it_is_told_to_stop(worker: Worker) -> None:
    line = worker.join()
    worker.control.drain("SIGTERM")
    assert next_of(line, Drain).name == "box-a-0"
    for _ in range(10):
        next_of(line, Beat)
        line.tell(BeatSeen(session="s1"))
    assert worker.orders.take() is None
    line.tell(Stop())
    assert worker.order() == Leave(code=0, reason="SIGTERM, and others hold its experts")
    worker.control.finish()
    assert isinstance(line.told_so_far()[-1], Stopped)


def test_nobodys_member_leaves_at_once(worker: Worker) -> None:
    line = worker.line()
    worker.control.drain("SIGTERM")
    assert worker.order() == Leave(code=0, reason="SIGTERM")
    worker.control.finish()
    assert line.told_so_far() == []


def test_beats_tell_for_how_long_the_work_in_hand_is_there(worker: Worker) -> None:
    line = worker.join()
    beat = next_of(line, Beat)
    assert beat.working_us == 0
    worker.progress.began_at = time.perf_counter() - 3.0
    while not (working := next_of(line, Beat)).working_us:
        pass
    assert 3_000_000 <= working.working_us < 60_000_000
    assert working.cpu_us >= beat.cpu_us > 0
    worker.progress.began_at = None
    while next_of(line, Beat).working_us:
        pass
