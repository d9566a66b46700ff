"""Workers on nodes of a Ray cluster, in the form that the supervisor looks after."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from coordinator.on_ray.holder import News
from coordinator.on_ray.plan import RayWorker

NEWS_S = 1.0
"""How long an actor waits for news; it hears of nothing else meanwhile."""
KEPT_LINES = 50
LOST = 1
"""Exit code of a worker whose actor or node is gone."""

OnLine = Callable[[str, str], None]


class Actors(Protocol):
    """What is asked of Ray."""

    def start(self, worker: RayWorker) -> Any:
        """An actor that holds this worker, when a node has room for it."""

    def ask(self, actor: Any, method: str, *arguments: object) -> Any:
        """What will be the answer."""

    def answer(self, asked: Any) -> Any:
        """The answer, or None if there is none yet. LookupError, with the reason, if there will never be one."""

    def kill(self, actor: Any) -> None:
        """End it at once."""


class RayChild:
    """One life of one worker."""

    def __init__(self, worker: RayWorker, actors: Actors, on_line: OnLine) -> None:
        self.name = worker.name
        self.started_at = time.monotonic()
        self.pid = 0
        self._actors = actors
        self._actor = actors.start(worker)
        self._on_line = on_line
        self._where = actors.ask(self._actor, "whereabouts")
        self._news = actors.ask(self._actor, "news", NEWS_S)
        self._code: int | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)

    def exit_code(self) -> int | None:
        """None while it runs, or waits for a node. Passes its lines on."""
        if self._code is not None:
            return self._code
        try:
            if self._where is not None and (where := self._actors.answer(self._where)) is not None:
                self._where = None
                host, self.pid = where
                self._on_line(self.name, f"process {self.pid} on {host}")
            news: News | None = self._actors.answer(self._news)
            if news is not None:
                self._hear(news)
        except LookupError as error:
            self._lines.append(str(error))
            self._code = LOST
        return self._code

    def ended(self) -> str:
        """How, for people."""
        code = self.exit_code()
        if code is None:
            return "still runs"
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        last = next((line for line in reversed(self._lines) if line), "")
        return f"{how}: {last.removeprefix('error: ')}" if code > 0 and last else how

    def tail(self, count: int) -> list[str]:
        """The last lines that it wrote, so many at most."""
        return list(self._lines)[-count:]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self._code is None:
            self._actors.ask(self._actor, "send", int(number))

    def kill(self) -> None:
        """Without asking."""
        self._actors.kill(self._actor)

    def _hear(self, news: News) -> None:
        lines, self._code = news
        for line in lines:
            self._on_line(self.name, line)
            self._lines.append(line)
        if self._code is None:
            self._news = self._actors.ask(self._actor, "news", NEWS_S)
        else:
            self.kill()  # so that its node has room again


class RayWorkers:
    """All of them: what a supervisor starts."""

    def __init__(self, workers: Sequence[RayWorker], actors: Actors, on_line: OnLine) -> None:
        self._workers = {worker.name: worker for worker in workers}
        self._actors = actors
        self._on_line = on_line
        self.children = {name: RayChild(worker, actors, on_line) for name, worker in self._workers.items()}

    def start(self, name: str) -> RayChild:
        """A new life of that worker, wherever there is room."""
        self.children[name] = RayChild(self._workers[name], self._actors, self._on_line)
        return self.children[name]

    def forget(self, name: str) -> None:
        """It has left for good."""
        del self.children[name]

    def stop(self, within_s: float, pause: Callable[[], None]) -> None:
        """Ask all to leave, and end those that have not in time; `pause` waits for a moment."""
        deadline = time.monotonic() + within_s
        for child in self.children.values():
            child.send(signal.SIGTERM)
        while time.monotonic() < deadline and any(one.exit_code() is None for one in self.children.values()):
            pause()
        for child in self.children.values():
            child.kill()
