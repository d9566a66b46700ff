"""Several requests of one client at the same time, and what their answers come to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from sides import Prompts, Timing

from coordinator.client import TICK_S, Client, Watch
from coordinator.sampling import Sampling
from protocol.errors import RequestError
from protocol.messages import Finished, Prefilled, RequestFailed, SayHello, Token

Event = tuple[int, Token | Finished | None]
"""Which prompt, and what became of it; None if nothing has come for a moment."""


class Crowd(Client):
    """A client that asks for several answers at once."""

    def __enter__(self) -> Crowd:
        return self

    def answers(self, prompts: Prompts, tokens: int, watch: Watch) -> Iterator[Event]:
        """Ask for all, and follow until each has ended. RequestError if one fails."""
        sampling = Sampling()
        asked = [self.submit(prompt, max_tokens=tokens, stop_ids=[], sampling=sampling) for prompt in prompts]
        number_of = {request: number for number, request in enumerate(asked)}
        while number_of:
            message = self._receive(TICK_S)
            match message:
                case None:
                    watch()
                    yield 0, None
                case Token() if message.request in number_of:
                    yield number_of[message.request], message
                case Finished() if message.request in number_of:
                    yield number_of.pop(message.request), message
                case RequestFailed() if message.request in number_of:
                    raise RequestError(message.reason)
                case SayHello():
                    raise RequestError("the coordinator has lost these requests; was it started again?")
                case Prefilled():
                    pass


class Answers:
    """Tokens as they come."""

    def __init__(self, prompts: Prompts, tokens: int) -> None:
        """To be made just before the prompts are asked."""
        self.wanted = tokens * len(prompts)
        self.reports: list[Mapping[str, Any]] = []
        self._began = time.perf_counter()
        self._ids: list[list[int]] = [[] for _ in prompts]
        self._heard: list[float] = []
        self._all_begun = 0.0
        self._waiting = len(prompts)
        self._finished: Finished | None = None

    @property
    def told(self) -> int:
        """Tokens so far."""
        return len(self._heard)

    def take(self, event: Event) -> None:
        """The next event."""
        number, message = event
        if isinstance(message, Token):
            self._heard.append(time.perf_counter())
            self._waiting -= not self._ids[number]
            self._ids[number].append(message.id)
            if not self._waiting and not self._all_begun:
                self._all_begun = self._heard[-1]
        elif isinstance(message, Finished):
            self._finished = message
            self.reports.append(message.report)

    def timing(self, note: str) -> Timing:
        """Once all have ended. The coordinator's own times if there was one, else those of this client."""
        assert self._finished is not None
        facts: dict[str, Any] = {"ids": tuple(map(tuple, self._ids)), "note": note, "report": self.reports[-1]}
        if len(self._ids) == 1:
            prompt_us, decode_us = self._finished.prompt_us, self._finished.decode_us
            return Timing(prompt_s=prompt_us / 1e6, decode_s=decode_us / 1e6, decoded=self.told - 1, **facts)
        later = [heard for heard in self._heard if heard > self._all_begun]
        return Timing(
            prompt_s=self._all_begun - self._began,
            decode_s=self._heard[-1] - self._all_begun,
            decoded=len(later),
            **facts,
        )
