"""The client against a coordinator that follows a script, in a thread of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import pytest
from command_line import wait_until
from scripted_coordinator import Coordinator, Script, welcome

import coordinator.client as client_module
from coordinator.client import Client
from coordinator.sampling import Sampling
from protocol.errors import ConfigError, RequestError
from protocol.messages import (
    AskStatus,
    Cancel,
    Finished,
    Hello,
    Message,
    Prefilled,
    Refused,
    RequestFailed,
    SayHello,
    Status,
    Stop,
    Submit,
    Token,
)

pytestmark = pytest.mark.timeout(30)


def token(request: str, index: int) -> Token:
    return Token(request=request, index=index, id=5, sha256_logits="00", elapsed_us=1)


def finished(request: str, reason: str = "length") -> Finished:
    return Finished(request=request, reason=reason, prompt_us=1, decode_us=1, report={})


def submit(client: Client) -> str:
    return client.submit([1, 2], max_tokens=3, stop_ids=[9], sampling=Sampling(temperature=0.5, top_k=7, seed=11))


def answering(*answers: Callable[[str], Message]) -> Script:
    """Welcome, and these answers to a Submit."""

    def script(message: Message) -> Sequence[Message]:
        if isinstance(message, Hello):
            return [welcome()]
        return [answer(message.request) for answer in answers] if isinstance(message, Submit) else []

    return script


def test_hello_makes_the_claims_that_the_caller_made() -> None:
    coordinator = Coordinator(lambda message: [welcome()])
    with coordinator.serving() as client:
        client.greet(10.0)
    (hello,) = coordinator.heard
    assert isinstance(hello, Hello)
    assert (hello.role, hello.fingerprint, hello.geometry) == ("client", "f" * 16, {"layers": 2})


def test_a_refusal_names_every_mismatch() -> None:
    wrong = [["fingerprint", "ff", "ee"], ["geometry.layers", "2", "3"]]
    coordinator = Coordinator(lambda message: [Refused(mismatches=wrong)])
    with (
        coordinator.serving() as client,
        pytest.raises(ConfigError, match=r"fingerprint is ff, expected ee; geometry\.layers is 2, expected 3"),
    ):
        client.greet(10.0)


def test_nobody_answers() -> None:
    watched: list[int] = []
    with (
        Client(f"ipc://@expertmesh-test-{secrets.token_hex(8)}") as client,
        pytest.raises(ConfigError, match=r"no coordinator answers at ipc://@expertmesh-test-\w+ within 0\.3 s"),
    ):
        client.greet(0.3, lambda: watched.append(1))
    assert watched


def test_a_request_from_submit_to_finished() -> None:
    other = "another request"
    coordinator = Coordinator(
        answering(
            lambda request: Prefilled(request=request, done=2, total=2),
            lambda request: token(other, 0),
            lambda request: token(request, 0),
            lambda request: RequestFailed(request=other, reason="not ours"),
            finished,
        )
    )
    with coordinator.serving() as client:
        client.greet(10.0)
        request = submit(client)
        kinds = [type(event).__name__ for event in client.events(request)]
        client.cancel(request)
        client.stop()
        assert client.status(0.2) is None
        assert wait_until(lambda: isinstance(coordinator.heard[-1], AskStatus), 10.0)
    assert kinds == ["Prefilled", "Token", "Finished"]
    submitted = coordinator.heard[1]
    assert isinstance(submitted, Submit)
    assert submitted.prompt_ids.tolist() == [1, 2]
    assert (submitted.max_tokens, submitted.stop_ids) == (3, [9])
    assert (submitted.temperature, submitted.top_k, submitted.seed) == (0.5, 7, 11)
    assert [type(message) for message in coordinator.heard[2:]] == [Cancel, Hello, Stop, AskStatus]


def test_a_request_that_fails() -> None:
    coordinator = Coordinator(answering(lambda request: RequestFailed(request=request, reason="layer 3 is too hot")))
    with coordinator.serving() as client:
        client.greet(10.0)
        events = client.events(submit(client))
        with pytest.raises(RequestError, match=r"^layer 3 is too hot$"):
            next(events)


def knows_nothing(message: Message) -> Message:
    return Status(report={"state": "ready", "yours": ["another request"]})


@pytest.mark.parametrize("answer", [lambda message: SayHello(), knows_nothing])
def test_a_coordinator_that_does_not_have_the_request_says_so(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Message], Message]
) -> None:
    """Started again with any model, reconnected under another id, or the Submit was dropped: all look like this."""
    monkeypatch.setattr(client_module, "PROBE_S", 0.1)

    def script(message: Message) -> Sequence[Message]:
        return [answer(message)] if isinstance(message, AskStatus) else answering()(message)

    with Coordinator(script).serving() as client:
        client.greet(10.0)
        events = client.events(submit(client))
        with pytest.raises(RequestError, match="has lost this request"):
            next(events)


def test_a_coordinator_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its launcher was killed: nobody starts it again, and nobody says that the request is lost."""
    monkeypatch.setattr(client_module, "PROBE_S", 0.1)
    with Client(f"ipc://@expertmesh-test-{secrets.token_hex(8)}") as client:
        events = client.events(submit(client))
        with pytest.raises(RequestError, match=r"nothing listens at ipc://@\S+ any more, so this request is lost"):
            next(events)


def test_a_coordinator_that_has_ended_lets_nobody_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PROBE_S", 0.1)
    with (
        Client(f"ipc://@expertmesh-test-{secrets.token_hex(8)}") as client,
        pytest.raises(ConfigError, match=r"nothing listens at ipc://@\S+ any more: its coordinator has ended"),
    ):
        client.drain("worker-0", 60.0)


def test_a_slow_coordinator_that_has_the_request_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PROBE_S", 0.1)
    monkeypatch.setattr(client_module, "SILENCE_S", 1.0)
    requests: list[str] = []
    asked = 0

    def script(message: Message) -> Sequence[Message]:
        nonlocal asked
        if isinstance(message, Submit):
            requests.append(message.request)
        if isinstance(message, AskStatus):
            asked += 1
            return [finished(requests[0])] if asked > 15 else [Status(report={"yours": requests})]
        return answering()(message)

    with Coordinator(script).serving() as client:
        client.greet(10.0)
        assert [type(event) for event in client.events(submit(client))] == [Finished]


def test_a_status_from_before_the_request_says_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PROBE_S", 0.1)
    due: list[Message] = []

    def script(message: Message) -> Sequence[Message]:
        match message:
            case AskStatus() if not due:
                due.append(Status(report={"yours": []}))
                return []
            case Submit(request=request):
                due.append(finished(request))
                return [due[0]]
            case AskStatus():
                return [due[1]]
        return answering()(message)

    with Coordinator(script).serving() as client:
        client.greet(10.0)
        assert client.status(0.1) is None
        assert [type(event) for event in client.events(submit(client))] == [Finished]


CHATTER: dict[str, Message] = {
    "welcome": welcome(),
    "refused": Refused(mismatches=[["fingerprint", "ff", "ee"]]),
    "another request": token("another request", 0),
    "another failure": RequestFailed(request="another request", reason="not ours"),
}


@pytest.mark.parametrize("chatter", [None, *CHATTER])
def test_whatever_else_a_coordinator_says_it_is_given_up(monkeypatch: pytest.MonkeyPatch, chatter: str | None) -> None:
    monkeypatch.setattr(client_module, "PROBE_S", 0.05)
    monkeypatch.setattr(client_module, "SILENCE_S", 0.5)
    said = [] if chatter is None else [CHATTER[chatter]]

    def script(message: Message) -> Sequence[Message]:
        return said if isinstance(message, AskStatus) else answering()(message)

    with Coordinator(script).serving() as client:
        client.greet(10.0)
        events = client.events(submit(client))
        with pytest.raises(RequestError, match=r"has said nothing of this request for 0\.5 s"):
            next(events)


def test_watching_ends_the_wait() -> None:
    def pointless() -> None:
        raise RequestError("no use")

    with Coordinator(answering()).serving() as client:
        client.greet(10.0)
        events = client.events(submit(client), pointless)
        with pytest.raises(RequestError, match=r"^no use$"):
            next(events)


def test_asking_for_the_status_loses_no_event() -> None:
    def script(message: Message) -> Sequence[Message]:
        if isinstance(message, AskStatus):
            return [Status(report={"state": "busy"})]
        return answering(lambda request: token(request, 0), finished)(message)

    with Coordinator(script).serving() as client:
        client.greet(10.0)
        request = submit(client)
        assert client.status(10.0) == {"state": "busy"}
        assert [type(event) for event in client.events(request)] == [Token, Finished]
        client.ask_status()
        assert client.poll_status(10.0) == {"state": "busy"}
        assert client.poll_status(0.0) is None


def test_a_prompt_that_no_message_can_hold_is_refused_before_it_is_sent() -> None:
    coordinator = Coordinator(lambda message: [])
    with coordinator.serving() as client:
        with pytest.raises(RequestError, match="a prompt of 262145 tokens, 262144 at most can be sent"):
            client.submit([1] * (2**18 + 1), max_tokens=1, stop_ids=[], sampling=Sampling())
        client.submit([1] * 2**18, max_tokens=1, stop_ids=[], sampling=Sampling())
        while not coordinator.heard:
            client.poll_status(0.02)
    (submit,) = coordinator.heard
    assert isinstance(submit, Submit)
    assert len(submit.prompt_ids) == 2**18
