"""A coordinator's service over scripted sockets, the model computed in this process; and clients that ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scripted_mesh import LIMITS
from scripted_parts import Clock, ScriptedSocket

import native
from coordinator.cluster import Cluster
from coordinator.dense import DenseModel
from coordinator.dispatch import MeshExperts
from coordinator.engine import Engine
from coordinator.hello import Terms
from coordinator.members import Members
from coordinator.planner import Planner
from coordinator.service import Service
from expert_worker.bank import ExpertBank
from protocol.messages import (
    ALL_EXPERTS,
    MAX_ROWS,
    NO_EXPERTS,
    PROTOCOL,
    Finished,
    Hello,
    Message,
    Submit,
    Token,
    Welcome,
)
from protocol.model import Model
from protocol.stock import Stock

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


class Desk:
    """A service, and clients that submit and listen."""

    def __init__(self, service: Service, cluster: Cluster, control: ScriptedSocket, engine: Engine) -> None:
        self.service = service
        self.cluster = cluster
        self.engine = engine
        self.control = control
        self.heard: list[Message] = []
        self.client(b"c")

    def client(self, peer: bytes, greet: bool = True) -> None:
        self.control.peers[peer] = self.heard.append
        if greet:
            self.say(_hello(), peer)
            self.service.turn()
            assert isinstance(self.heard.pop(), Welcome)

    def say(self, message: Message, peer: bytes = b"c") -> None:
        self.control.inbox.append((peer, message))

    def run(self, turns: int = 200) -> None:
        """Until nothing is left to do."""
        for _ in range(turns):
            self.service.turn()
            if not self.control.inbox and not self.service.report()["requests"]:
                return
        raise AssertionError("it does not come to an end")

    def ask(self, **change: Any) -> list[Message]:
        """Everything a client hears of one request."""
        del self.heard[:]
        self.say(submit(**change))
        self.run()
        return list(self.heard)

    def tokens(self, request: str = "r") -> list[Token]:
        """What was heard of one request."""
        return [one for one in self.heard if isinstance(one, Token) and one.request == request]

    def answer(self, **change: Any) -> tuple[list[int], str, Finished]:
        """Ids, digest of the logits, and the end of one request."""
        heard = self.ask(**change)
        tokens = [message for message in heard if isinstance(message, Token)]
        finished = heard[-1]
        assert isinstance(finished, Finished)
        assert [token.index for token in tokens] == list(range(len(tokens)))
        return [token.id for token in tokens], tokens[-1].sha256_logits, finished


def _hello() -> Hello:
    return Hello(
        protocol=PROTOCOL,
        role="client",
        name="cli",
        incarnation="c1",
        pid=1,
        host="box",
        fingerprint="",
        geometry={},
        isa="",
        threads=0,
        entry_ns=0,
        memory=-1,
        room=0,
        pages="",
        able=ALL_EXPERTS,
        held=NO_EXPERTS,
    )


def submit(**change: Any) -> Submit:
    """A greedy request of six tokens, without drafts."""
    fields: dict[str, Any] = {
        "request": "r",
        "prompt_ids": np.array(PROMPT, np.int32),
        "max_tokens": 6,
        "stop_ids": [],
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "repeat_window": 64,
        "seed": 0,
        "drafts": 0,
    }
    return Submit(**(fields | change))


@contextmanager
def desk_for(path: Path, *, chunk: int = 64, workers: int = 0, drafts: int = 0, kv: str = "f32") -> Iterator[Desk]:
    """A coordinator of the model of `path`, whose processes are this one; the clock stands still."""
    with Model.open(path) as model:
        terms = Terms(session="5e55", fingerprint="f", geometry=model.geometry.handshake(), work="ipc://@work")
        clock, control, work = Clock(), ScriptedSocket(), ScriptedSocket()
        stock = Stock.of(model.layout)
        planner = Planner(stock=stock, own=stock.nothing())
        members = Members(terms, planner, expected=workers, fresh_token=lambda: "token")
        cluster = Cluster(
            control,
            work,
            members,
            wait=lambda timeout_s: [socket for socket in (work, control) if socket.inbox],
            limits=LIMITS,
            clock=clock,
        )
        pool = native.Pool(1)
        with ExpertBank(model, pool) as bank:
            experts = MeshExperts(cluster, bank, model.layout)
            engine = Engine(model, experts, DenseModel(model, pool, MAX_ROWS, kv))
            service = Service(cluster, engine, experts, chunk=chunk, threads=1, drafts=drafts, clock=clock)
            yield Desk(service, cluster, control, engine)
            engine.close()
