"""Requests in, tokens out: the coordinator's loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import native
from coordinator.canaries import Canaries
from coordinator.cluster import Cluster, FromClient
from coordinator.dispatch import MeshExperts
from coordinator.engine import Chunk, Engine, RowError
from coordinator.hello import MAX_NAME, is_name
from coordinator.profile_keeper import Keeper
from coordinator.report import mesh_report
from coordinator.requests import Request, drafts_of, sampling_of
from coordinator.scheduler import Share, next_window
from coordinator.step_cost import StepCost, worth_drafting
from coordinator.tallies import Counters, DraftCounts
from protocol.errors import ExpertmeshError, RequestError
from protocol.messages import F32, AskStatus, Cancel, Finished, Prefilled, RequestFailed, Status, Submit, Token

log = logging.getLogger(__name__)

MAX_REQUESTS = 64
"""Requests that may be under way or waiting; each has a cache of its own."""
IDLE_S = 0.05
"""How long the loop sleeps at most while there is nothing to compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A request and its part of the window."""

    request: Request
    chunk: Chunk

    @property
    def drafts(self) -> list[int]:
        """The guesses among its ids."""
        return [int(token) for token in self.chunk.ids[len(self.chunk.known) :]]

    def without_drafts(self) -> _Turn:
        """Only what there would be if nothing had been guessed."""
        return replace(self, chunk=replace(self.chunk, ids=self.chunk.known, drafts=0))


class _Abandoned(ExpertmeshError):
    """Nobody waits any more for what a step computes."""


class Service:
    """All requests of one coordinator. One thread."""

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        experts: MeshExperts,
        *,
        chunk: int,
        threads: int,
        model: str = "",
        device: str = "cpu",
        drafts: int = 0,
        keeper: Keeper | None = None,
        canaries: Canaries | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`chunk` is how many rows a window has at most; `threads`, `device` and `model`, a name, are told in reports.

        Requests that do not say how many drafts a step may have get `drafts`. `keeper` has what the engine records.
        `canaries` try members before these are given work; None believes them.
        """
        self._cluster = cluster
        self._engine = engine
        self._experts = experts
        self._chunk = chunk
        self._threads = threads
        self._model = model
        self._device = device
        self._drafts = drafts
        self._keeper = keeper
        self._canaries = canaries
        self._clock = clock
        self._cost = StepCost()
        self._drafted = DraftCounts()
        self._requests: dict[tuple[bytes, str], Request] = {}
        self._next_key = 0
        self._was_ready = False

    def turn(self) -> None:
        """Hear everybody, then compute one step, or wait a moment if there is nothing to compute."""
        self.attend()
        self._was_ready = self._was_ready or self._cluster.members.assignment.ready
        if self._cluster.closing:
            return
        busy = bool(self._requests) and self._was_ready
        if self._keeper is not None:
            self._keeper.turn(idle=not busy)
        if busy:
            self._step()
        else:
            self._cluster.wait(IDLE_S)

    def attend(self) -> None:
        """Hear everybody, and compute nothing. Never waits."""
        self._cluster.attend()
        self._hear_clients()
        if self._canaries is None or self._canaries.turn():
            self._cluster.members.assignment.switch()

    @property
    def ready(self) -> bool:
        """The expected workers have joined once: requests are computed from then on."""
        return self._was_ready

    def end(self, reason: str) -> None:
        """No request goes on; their clients are told why."""
        for request in tuple(self._requests.values()):
            self._fail(request, reason)

    def report(self, since: Counters | None = None) -> dict[str, Any]:
        """Status.report; with `since`, counters are what was counted after it."""
        cluster = self._cluster
        now = cluster.counts()
        counted = now if since is None else now.minus(since)
        state = "waiting" if not self._was_ready else "busy" if self._requests else "ready"
        return {
            "state": state,
            "model": self._model,
            "isa": native.isa(),
            "threads": self._threads,
            "device": self._device,
            "step": self._engine.steps,
            "requests": len(self._requests),
            "reading": [[one.prompt_done, one.prompt_tokens] for one in self._requests.values() if not one.generated],
            "layers": self._experts.times.summary(counted.layers),
            "inputs": self._experts.inputs_report(),
            "drafts": self._drafted.report(),
            "profile": None if self._keeper is None else self._keeper.report(),
            **mesh_report(cluster.members, counted, cluster.suspects(), self._clock()),
        }

    # --- clients ----------------------------------------------------------------------------------------------

    def _hear_clients(self) -> None:
        """Also between two layers: a step can take long, and somebody may want to know how far it is, or to end it."""
        while self._cluster.inbox:
            self._hear(*self._cluster.inbox.popleft())

    def _hear(self, client: bytes, message: FromClient) -> None:
        match message:
            case Submit():
                self._submit(client, message)
            case Cancel():
                request = self._requests.get((client, message.request))
                if request is not None:
                    self._finish(request, "cancelled")
            case AskStatus():
                yours = [name for peer, name in self._requests if peer == client]
                self._cluster.tell(client, Status(report={**self.report(), "yours": yours}))

    def _submit(self, client: bytes, submit: Submit) -> None:
        try:
            request = self._accept(client, submit)
        except RequestError as error:
            self._cluster.tell(client, RequestFailed(request=submit.request, reason=str(error)))
            return
        if not self._requests:
            self._cluster.busy_since = self._clock()
        self._requests[client, submit.request] = request

    def _accept(self, client: bytes, submit: Submit) -> Request:
        if not is_name(submit.request):
            found = repr(submit.request[: MAX_NAME + 1])
            raise RequestError(f"a request's name is {found}, expected 1 to {MAX_NAME} printable characters")
        if (client, submit.request) in self._requests:
            raise RequestError(f"request {submit.request!r} is under way already, a fresh name expected")
        if len(self._requests) >= MAX_REQUESTS:
            raise RequestError(f"{MAX_REQUESTS} requests are under way, no more are taken; try again later")
        sampling, drafts = sampling_of(submit), drafts_of(submit, self._drafts)
        sequence = self._engine.new_sequence(submit.prompt_ids, submit.max_tokens)
        self._next_key += 1
        return Request(self._next_key, client, submit, sampling, sequence, self._cluster.counts(), drafts)

    # --- steps ------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        by_key = {request.key: request for request in self._requests.values()}
        shares = next_window((request.pending() for request in by_key.values()), self._chunk)
        drafts = self._drafts_of(shares, by_key)
        now = self._clock()
        chunks = [by_key[share.key].chunk(share.rows, now, drafts.get(share.key, ())) for share in shares]
        self._compute(
            [_Turn(request=by_key[share.key], chunk=chunk) for share, chunk in zip(shares, chunks, strict=True)]
        )

    def _drafts_of(self, shares: Sequence[Share], by_key: Mapping[int, Request]) -> dict[int, tuple[int, ...]]:
        """What is guessed in the room that all others leave, by key."""
        drafts = {share.key: by_key[share.key].draft() for share in shares}
        rows = sum(share.rows for share in shares)
        running = [key for key, draft in drafts.items() if by_key[key].generated]
        counts = worth_drafting([drafts[key].chances for key in running], rows, self._chunk - rows, self._cost)
        return {key: drafts[key].ids[:count] for key, count in zip(running, counts, strict=True)}

    def _compute(self, turns: Sequence[_Turn]) -> None:
        """One window. If it fails, each request is tried alone, so that only who is to blame fails; without drafts."""
        if not self._is_wanted(turns):
            return
        began, spent_s = self._clock(), self._experts.spent_s
        try:
            logits = self._engine.step([turn.chunk for turn in turns], lambda: self._between_layers(turns))
        except _Abandoned:
            log.info("step %d was for cancelled requests only: ended early", self._engine.steps - 1)
        except ExpertmeshError as error:
            if drafting := [turn for turn in turns if turn.chunk.drafts]:  # which may be to blame: nobody fails by them
                log.info("step %d failed, and is tried again without drafts: %s", self._engine.steps - 1, error)
                for turn in drafting:
                    turn.request.give_up_drafts()
                self._compute([turn.without_drafts() for turn in turns])
            elif isinstance(error, RowError):
                self._without(turns, error)
            elif len(turns) == 1:
                self._fail(turns[0].request, str(error))
            else:
                for turn in turns:
                    self._compute([turn])
        else:
            if all(len(turn.chunk.known) == 1 for turn in turns):
                self._observe(sum(len(turn.chunk.ids) for turn in turns), self._clock() - began, spent_s)
            for turn, rows in zip(turns, logits, strict=True):
                self._advance(turn, rows)

    def _observe(self, rows: int, seconds: float, spent_s: float) -> None:
        """A step took so long, and began when so much had been spent on experts ever."""
        self._cost.observe(rows, seconds)
        if rows == 1:
            self._cluster.meter.dense.add(max(0.0, seconds - (self._experts.spent_s - spent_s)))

    def _between_layers(self, turns: Sequence[_Turn]) -> None:
        self._hear_clients()  # whom the layer before has received: `begin_layer` attends
        if not self._is_wanted(turns):
            raise _Abandoned

    def _is_wanted(self, turns: Sequence[_Turn]) -> bool:
        """Whether one of these requests at least is under way still."""
        return any(self._is_under_way(turn.request) for turn in turns)

    def _is_under_way(self, request: Request) -> bool:
        return self._requests.get((request.client, request.name)) is request

    def _without(self, turns: Sequence[_Turn], error: RowError) -> None:
        """Fail the request to blame; the others have lost nothing and are computed again."""
        rest = [turn for turn in turns if turn.request.sequence is not error.sequence]
        for turn in turns:
            if turn.request.sequence is error.sequence:
                self._fail(turn.request, str(error))
        if rest:
            self._compute(rest)

    def _advance(self, turn: _Turn, logits: F32) -> None:
        """Tell the client what has become of its request, unless that was cancelled meanwhile."""
        request = turn.request
        if not self._is_under_way(request):
            return
        if request.generated == 0:
            done = Prefilled(request=request.name, done=request.prompt_done, total=request.prompt_tokens)
            if not self._tell(request, done):
                return
        if not len(logits):
            return
        before = replace(request.counts)
        try:
            for token, reason in request.take(logits, turn.drafts, self._clock()):
                if not self._tell(request, token):
                    break
                if reason is not None:
                    self._finish(request, reason)
        except RequestError as error:
            self._fail(request, str(error))
        self._drafted.add(request.counts.minus(before))

    def _tell(self, request: Request, progress: Prefilled | Token) -> bool:
        """False if the client is gone; its request then is no more."""
        if self._cluster.tell(request.client, progress):
            return True
        log.info("the client of request %s is gone", request.name)
        self._forget(request)
        return False

    def _finish(self, request: Request, reason: str) -> None:
        self._forget(request)
        prompt_us, decode_us = request.spent_us(self._clock())
        finished = Finished(
            request=request.name,
            reason=reason,
            prompt_us=prompt_us,
            decode_us=decode_us,
            report=self.report(since=request.before) | {"drafts": request.counts.report()},
        )
        self._cluster.tell(request.client, finished)

    def _fail(self, request: Request, reason: str) -> None:
        if not self._is_under_way(request):
            return
        self._forget(request)
        log.warning("request %s failed: %s", request.name, reason)
        self._cluster.tell(request.client, RequestFailed(request=request.name, reason=reason))

    def _forget(self, request: Request) -> None:
        del self._requests[request.client, request.name]
