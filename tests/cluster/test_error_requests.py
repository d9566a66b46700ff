"""What clients are told whose request is bad, or hits a damaged expert: every message, whole; the service goes on.

One cluster for all of it, with two workers, on a copy of the demo model in which one expert gives no numbers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest
from clusters import PATIENT, LiveCluster, in_force, live_cluster
from damaged_experts import experts_of, plant_nan
from message_examples import hello, submit
from reference_answer import PROMPT, Reference

from coordinator.client import Client
from coordinator.sampling import Sampling
from coordinator.service import MAX_REQUESTS
from protocol.codec import encode
from protocol.errors import RequestError
from protocol.messages import Finished, Message, RequestFailed, Token, Welcome
from protocol.wire import Dialled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

WITHIN_S = 20.0
TOKENS = 60
"""Of the answer to PROMPT that needs no damaged expert."""
LARGEST = 2**63 - 1


@pytest.fixture(scope="module")
def damage(demo_model: Path) -> tuple[int, int, int]:
    """Layer and expert that the answer to PROMPT does not need, and a token that does."""
    needed = experts_of(demo_model, PROMPT, TOKENS)
    layer, expert = min({(5, expert) for expert in range(16)} - needed)
    token = next(token for token in range(1000) if (layer, expert) in experts_of(demo_model, [token], 1))
    return layer, expert, token


@pytest.fixture(scope="module")
def cluster(
    demo_model: Path, damage: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    folder = tmp_path_factory.mktemp("damaged")
    model = Path(shutil.copy(demo_model, folder / "damaged.gguf"))
    plant_nan(model, *damage[:2])
    with live_cluster(model, folder, workers=2, coordinator_options=PATIENT) as cluster:
        yield cluster


@pytest.fixture
def line(cluster: LiveCluster) -> Iterator[Dialled]:
    """A client's control connection that says whatever it is given."""
    with Dialled(cluster.endpoint) as line:
        line.send(hello(role="client", name="raw", fingerprint="", geometry={}))
        assert isinstance(hear(line), Welcome)
        yield line


def hear(line: Dialled) -> Message:
    message = line.receive(WITHIN_S)
    assert message is not None, f"nothing within {WITHIN_S} s"
    return message


def ids(*found: int) -> Any:
    return np.array(found, np.int32)


def whole(name: str, found: int, high: int = LARGEST) -> str:
    return f"{name} is {found}, expected a whole number from 0 to {high}"


REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "empty prompt": ({"prompt_ids": ids()}, "the prompt is empty: one token at least is expected"),
    "unknown id": (
        {"prompt_ids": ids(1, 4096)},
        "token id 4096 at index 1 is not in the vocabulary: expected 0..4095",
    ),
    "negative id": ({"prompt_ids": ids(-1)}, "token id -1 at index 0 is not in the vocabulary: expected 0..4095"),
    "no tokens": ({"max_tokens": 0}, "max_tokens is 0, expected 1 or more"),
    "fewer than none": ({"max_tokens": -5}, "max_tokens is -5, expected 1 or more"),
    "answer longer than the context": (
        {"max_tokens": 2046},
        "3 prompt tokens and 2046 new ones need 2049 positions, the model's context has 2048",
    ),
    "endless answer": (
        {"max_tokens": LARGEST},
        f"3 prompt tokens and {LARGEST} new ones need {LARGEST + 3} positions, the model's context has 2048",
    ),
    "prompt longer than the context": (
        {"prompt_ids": np.zeros(1 << 18, np.int32), "max_tokens": 1},
        "262144 prompt tokens and 1 new one need 262145 positions, the model's context has 2048",
    ),
    "temperature below zero": ({"temperature": -1.0}, "temperature is -1.0, expected a finite number from 0"),
    "several settings": (
        {"top_k": -1, "top_p": 0.0, "min_p": 1.5, "repeat_penalty": 0.0, "repeat_window": -1, "seed": -1},
        f"{whole('top_k', -1)}; top_p is 0.0, expected a number over 0 and up to 1; "
        "min_p is 1.5, expected a number from 0 to 1; repeat_penalty is 0.0, expected a finite number over 0; "
        f"{whole('repeat_window', -1)}; {whole('seed', -1)}",
    ),
    "no name": ({"request": ""}, "a request's name is '', expected 1 to 64 printable characters"),
    "name of two lines": ({"request": "a\nb"}, "a request's name is 'a\\nb', expected 1 to 64 printable characters"),
    "long name": (
        {"request": "r" * 100},
        f"a request's name is '{'r' * 65}', expected 1 to 64 printable characters",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), REQUESTS.values(), ids=REQUESTS)
def test_a_bad_request_is_refused_before_any_layer_runs(
    cluster: LiveCluster, line: Dialled, changes: dict[str, Any], reason: str
) -> None:
    before = cluster.status()
    line.send(submit(**changes))
    failed = hear(line)
    assert isinstance(failed, RequestFailed)
    assert (failed.request, failed.reason) == (changes.get("request", "r1"), reason)
    after = cluster.status()
    assert (after["step"], after["requests"], after["dropped"]) == (before["step"], 0, before["dropped"])


MALFORMED: dict[str, dict[str, Any]] = {
    "temperature is no number": {"temperature": float("nan")},
    "temperature is infinite": {"temperature": float("inf")},
    "temperature is an integer": {"temperature": 1},
    "max_tokens is a float": {"max_tokens": 5.0},
    "max_tokens has more than 64 bits": {"max_tokens": 2**63},
    "seed is a text": {"seed": "7"},
    "stop_ids is a map": {"stop_ids": {}},
    "request is nothing": {"request": None},
    "a field too many": {"speed": 1},
}


@pytest.mark.parametrize("changes", MALFORMED.values(), ids=MALFORMED)
def test_a_request_that_is_no_message_is_counted_and_the_connection_goes_on(
    cluster: LiveCluster, line: Dialled, changes: dict[str, Any]
) -> None:
    dropped = cluster.status()["dropped"]
    header, *arrays = encode(submit())
    content = msgpack.unpackb(header)
    content["fields"] |= changes
    line._send([msgpack.packb(content), *arrays])
    line.send(submit(request="sound", max_tokens=1))
    heard = [hear(line) for _ in range(3)]
    assert [getattr(message, "request", None) for message in heard] == ["sound"] * 3
    assert isinstance(heard[-1], Finished)
    assert cluster.status()["dropped"] == dropped + 1


def test_a_name_in_use_and_the_65th_request_are_refused(cluster: LiveCluster) -> None:
    with Client(cluster.endpoint) as first, Dialled(cluster.endpoint) as line:
        line.send(hello(role="client", name="raw", fingerprint="", geometry={}))
        assert isinstance(hear(line), Welcome)
        first.greet(WITHIN_S)
        several = [submit(request=str(number), prompt_ids=ids(5), max_tokens=2000) for number in range(MAX_REQUESTS)]
        for request in [*several, several[0]]:  # whose refusal tells that all of them have come
            line.send(request)
        assert refusal(line) == ("0", "request '0' is under way already, a fresh name expected")
        one_more = first.submit([5], max_tokens=1, stop_ids=[], sampling=Sampling())
        with pytest.raises(RequestError) as caught:
            list(first.events(one_more))
        assert str(caught.value) == "64 requests are under way, no more are taken; try again later"
    cluster.wait_for(lambda report: report["requests"] == 0)  # their client is gone


def refusal(line: Dialled) -> tuple[str, str]:
    """The next one, whatever comes before it."""
    while not isinstance(message := hear(line), RequestFailed):
        pass
    return message.request, message.reason


def test_a_damaged_expert_fails_those_that_need_it_by_name_and_nobody_else(
    cluster: LiveCluster, reference: Reference, damage: tuple[int, int, int]
) -> None:
    layer, expert, token = damage
    prompts = [[token]] * 5 + [PROMPT] + [[token]] * 5
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(cluster.endpoint)) for _ in prompts]
        for client in clients:
            client.greet(WITHIN_S)
        cluster.coordinator.freeze()  # so that they come at once
        requests = [
            client.submit(prompt, max_tokens=TOKENS, stop_ids=[], sampling=Sampling())
            for client, prompt in zip(clients, prompts, strict=True)
        ]
        cluster.coordinator.thaw()
        for client, prompt, request in zip(clients, prompts, requests, strict=True):
            if prompt == PROMPT:
                *_, last, finished = client.events(request)
                assert isinstance(last, Token)
                assert isinstance(finished, Finished)
                assert finished.report["replans"] > 0, "they did not share a step"
                continue
            with pytest.raises(RequestError) as caught:
                list(client.events(request))
            assert str(caught.value) == (
                f"layer {layer}, expert {expert}: its output is not finite or reaches 2^22 in magnitude: "
                "are its weights damaged?"
            )
    again = cluster.answer(PROMPT, TOKENS)
    reference.check(again)
    assert again.sha256_logits == last.sha256_logits
    assert (again.report["local_entries"], again.report["replans"]) == (0, 0)
    assert in_force(cluster.status()) == 2, "the workers are not to blame"
