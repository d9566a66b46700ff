"""Requests against a real model without workers, over scripted sockets: what clients are told, and in what order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from desk import PROMPT, Desk, desk_for, submit
from local_engine import local_engine
from message_examples import LONGEST_TEXT, examples, largest, with_longest_text
from scripted_parts import Clock

import native
from coordinator.dense import Step
from coordinator.engine import Chunk, RowError
from coordinator.requests import Request, sampling_of
from coordinator.service import MAX_REQUESTS
from coordinator.tallies import Counters
from protocol.codec import encode
from protocol.errors import ExpertError
from protocol.messages import (
    F32,
    AskStatus,
    Cancel,
    Finished,
    Message,
    Prefilled,
    RequestFailed,
    SayHello,
    Status,
    Stop,
    Token,
)
from protocol.wire import SMALL_FRAME_BYTES


@pytest.fixture
def desk(tiny_model: Path) -> Iterator[Desk]:
    with desk_for(tiny_model) as desk:
        yield desk


def reference(model: Path, tokens: int) -> tuple[list[int], str]:
    """Greedy ids and the digest of their logits, without service or mesh."""
    digest, ids = hashlib.sha256(), []
    with local_engine(model) as engine:
        sequence = engine.new_sequence(PROMPT, tokens)
        next_ids = list(PROMPT)
        for _ in range(tokens):
            [logits] = engine.step([Chunk(sequence=sequence, ids=next_ids)])
            digest.update(logits[0].tobytes())
            next_ids = [int(logits[0].argmax())]
            ids += next_ids
    return ids, digest.hexdigest()


def test_an_answer_is_prefilled_then_tokens_then_finished(desk: Desk, tiny_model: Path) -> None:
    heard = desk.ask()
    assert [type(message).__name__ for message in heard] == ["Prefilled", *["Token"] * 6, "Finished"]
    prefilled, finished = heard[0], heard[-1]
    assert isinstance(prefilled, Prefilled)
    assert isinstance(finished, Finished)
    assert (prefilled.done, prefilled.total) == (10, 10)
    assert finished.reason == "length"
    tokens = [message for message in heard if isinstance(message, Token)]
    assert ([token.id for token in tokens], tokens[-1].sha256_logits) == reference(tiny_model, 6)


def test_the_coordinator_is_busy_since_the_first_of_the_requests_under_way(tiny_model: Path) -> None:
    with desk_for(tiny_model) as desk:
        clock = cast(Clock, desk.cluster._clock)
        for asked_at, busy_since in ((2000.0, 2000.0), (2001.0, 2000.0)):
            clock.now = asked_at
            desk.say(submit(request=str(asked_at), max_tokens=20))
            desk.service.turn()
            assert desk.cluster.busy_since == busy_since
        desk.run()
        clock.now = 3000.0
        desk.ask()
        assert desk.cluster.busy_since == 3000.0


@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_the_size_of_chunks_changes_nothing_but_the_progress(tiny_model: Path, chunk: int) -> None:
    with desk_for(tiny_model, chunk=chunk) as desk:
        ids, digest, _ = desk.answer()
        done = [message.done for message in desk.heard if isinstance(message, Prefilled)]
    assert (ids, digest) == reference(tiny_model, 6)
    assert done == [*range(chunk, 10, chunk), 10]


def test_requests_side_by_side_give_what_each_gives_alone(tiny_model: Path) -> None:
    prompts = [PROMPT, [7], [1, 2, 3] * 5, [200, 100]]
    with desk_for(tiny_model) as desk:
        alone = [desk.answer(prompt_ids=np.array(prompt, np.int32))[:2] for prompt in prompts]
    with desk_for(tiny_model, chunk=6) as desk:
        for number, prompt in enumerate(prompts):
            desk.say(submit(request=str(number), prompt_ids=np.array(prompt, np.int32)))
        desk.run()
        steps = desk.engine.steps
        beside = []
        for number in range(len(prompts)):
            tokens = [one for one in desk.heard if isinstance(one, Token) and one.request == str(number)]
            beside.append(([token.id for token in tokens], tokens[-1].sha256_logits))
    assert beside == alone
    assert steps < 4 * 7  # they shared steps


def test_a_stop_id_ends_the_answer_and_is_part_of_it(desk: Desk, tiny_model: Path) -> None:
    expected, _ = reference(tiny_model, 6)
    ids, _, finished = desk.answer(stop_ids=[expected[2]])
    assert ids == expected[: expected.index(expected[2]) + 1]
    assert finished.reason == "stop"


def test_sampled_tokens_depend_on_the_seed_alone(desk: Desk) -> None:
    first = desk.answer(temperature=1.0, seed=1, max_tokens=12)[0]
    assert desk.answer(temperature=1.0, seed=1, max_tokens=12)[0] == first
    assert desk.answer(temperature=1.0, seed=2, max_tokens=12)[0] != first


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt_ids": np.array([], np.int32)}, "the prompt is empty: one token at least is expected"),
        ({"prompt_ids": np.array([1, 512], np.int32)}, "token id 512.*511"),
        ({"prompt_ids": np.array([-1], np.int32)}, "token id -1.*511"),
        ({"max_tokens": 0}, "max_tokens is 0, expected 1 or more"),
        ({"max_tokens": 10**6}, r"10 prompt tokens and 1000000 new ones need 1000010 positions, .* context has \d+"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_a_bad_request_fails_with_its_numbers(desk: Desk, change: dict[str, Any], reason: str) -> None:
    (failed,) = desk.ask(**change)
    assert isinstance(failed, RequestFailed)
    assert failed.request == "r"
    assert re.search(reason, failed.reason), failed.reason
    assert desk.answer()[2].reason == "length"


def test_the_whole_context_can_be_used(desk: Desk) -> None:
    context = desk.engine._geometry.context
    heard = desk.ask(prompt_ids=np.ones(context - 2, np.int32), max_tokens=2)
    assert isinstance(heard[-1], Finished)
    assert isinstance(desk.ask(prompt_ids=np.ones(context - 2, np.int32), max_tokens=3)[0], RequestFailed)


def test_a_request_name_in_use_is_refused(desk: Desk) -> None:
    desk.say(submit())
    desk.say(submit())
    desk.run()
    assert [type(message).__name__ for message in desk.heard].count("RequestFailed") == 1
    assert isinstance(desk.heard[-1], Finished)


@pytest.mark.parametrize("name", ["", "r" * 65, "two\nlines", LONGEST_TEXT])
def test_a_request_name_that_cannot_be_shown_fails_however_often_it_comes(desk: Desk, name: str) -> None:
    for _ in range(2):
        (failed,) = desk.ask(request=name)
        assert isinstance(failed, RequestFailed)
        assert failed.request == name
        assert "expected 1 to 64 printable characters" in failed.reason
        assert len(failed.reason) < 1000
    assert desk.answer()[2].reason == "length"


def test_the_largest_sound_messages_of_a_client_cost_nobody_an_answer(desk: Desk) -> None:
    expected = desk.answer()[:2]
    sound = [*largest(SMALL_FRAME_BYTES), *(longer for one in examples() for longer in with_longest_text(one))]
    for message in [one for one in sound if not isinstance(one, Stop) for _ in range(2)]:
        desk.say(message)
        desk.run()
    assert desk.answer()[:2] == expected


def test_requests_are_bounded(desk: Desk) -> None:
    for number in range(MAX_REQUESTS + 1):
        desk.say(submit(request=str(number), max_tokens=1))
    desk.run()
    failed = [message.request for message in desk.heard if isinstance(message, RequestFailed)]
    assert failed == [str(MAX_REQUESTS)]
    assert sum(isinstance(message, Finished) for message in desk.heard) == MAX_REQUESTS


def test_whoever_asks_while_experts_are_copied_is_heard_and_nothing_is_computed(desk: Desk) -> None:
    desk.say(AskStatus())
    desk.say(submit())
    desk.service.attend()
    [status] = desk.heard
    assert isinstance(status, Status)
    assert (desk.engine.steps, desk.service.report()["requests"]) == (0, 1)
    desk.run()
    assert isinstance(desk.heard[-1], Finished)


def test_a_cancelled_request_ends_with_what_it_has(desk: Desk) -> None:
    desk.say(submit(max_tokens=100))
    for _ in range(4):
        desk.service.turn()
    desk.say(Cancel(request="r"))
    desk.run()
    finished = desk.heard[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "cancelled"
    assert sum(isinstance(message, Token) for message in desk.heard) == 4


class Amid:
    """Says something to the coordinator at the beginning of a layer of a step, and counts the layers of all steps."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch, step: int, layer: int, *messages: Message) -> None:
        self.layers = 0
        attend = Step.attend
        clock = cast(Clock, desk.cluster._clock)

        def attend_and_say(state: Step, number: int) -> None:
            attend(state, number)
            self.layers += 1
            clock.now += 1.0
            if (desk.engine.steps - 1, number) == (step, layer):
                for message in messages:
                    desk.say(message)

        monkeypatch.setattr(Step, "attend", attend_and_say)


def test_status_is_told_between_two_layers_with_the_progress_of_prompts(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk_for(tiny_model, chunk=4) as desk:
        Amid(desk, monkeypatch, 1, 1, AskStatus())
        heard = desk.ask()
    kinds = [type(message).__name__ for message in heard]
    assert kinds[:4] == ["Prefilled", "Status", "Prefilled", "Prefilled"]
    status = heard[1]
    assert isinstance(status, Status)
    assert (status.report["state"], status.report["reading"]) == ("busy", [[4, 10]])
    assert desk.service.report()["reading"] == []


def test_a_request_that_is_cancelled_in_mid_step_ends_before_the_next_layer(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk_for(tiny_model, chunk=4) as desk:
        expected = desk.answer()[:2]
        amid = Amid(desk, monkeypatch, desk.engine.steps + 1, 1, Cancel(request="r"), submit(request="next"))
        heard = desk.ask()
        assert [type(message).__name__ for message in heard[:2]] == ["Prefilled", "Finished"]
        assert isinstance(heard[1], Finished)
        assert heard[1].reason == "cancelled"
        tokens = [message for message in heard if isinstance(message, Token)]
        assert ([token.id for token in tokens], tokens[-1].sha256_logits) == expected
        assert {token.request for token in tokens} == {"next"}
        assert amid.layers == 4 + 2 + (3 + 5) * 4, "a chunk, half a chunk, and the next request"


def test_a_request_that_is_cancelled_in_mid_step_harms_nobody_beside_it(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk_for(tiny_model) as desk:
        expected = desk.answer(max_tokens=20)[:2]
        del desk.heard[:]
        amid = Amid(desk, monkeypatch, desk.engine.steps, 2, Cancel(request="r"), submit(request="r", max_tokens=3))
        desk.say(submit(request="r"))
        desk.say(submit(request="beside", max_tokens=20))
        desk.run()
        ended = [(one.request, one.reason) for one in desk.heard if isinstance(one, Finished)]
        assert ended == [("r", "cancelled"), ("r", "length"), ("beside", "length")]
        tokens = [one for one in desk.heard if isinstance(one, Token) and one.request == "beside"]
        assert ([token.id for token in tokens], tokens[-1].sha256_logits) == expected
        assert amid.layers == 4 * 20


def test_nobody_cancels_the_request_of_another_client(desk: Desk) -> None:
    desk.client(b"other")
    desk.say(submit())
    desk.say(Cancel(request="r"), b"other")
    desk.run()
    assert isinstance(desk.heard[-1], Finished)
    assert desk.heard[-1].reason == "length"


def test_a_request_whose_client_is_gone_is_dropped(desk: Desk) -> None:
    desk.say(submit(max_tokens=100))
    desk.service.turn()
    del desk.control.peers[b"c"]
    desk.service.turn()
    assert desk.service.report()["requests"] == 0


def test_a_client_must_say_hello_first(desk: Desk) -> None:
    desk.client(b"rude", greet=False)
    desk.say(submit(), b"rude")
    desk.service.turn()
    assert [type(message) for message in desk.heard] == [SayHello]


def test_status_needs_no_hello_and_can_be_sent(desk: Desk) -> None:
    desk.client(b"rude", greet=False)
    desk.answer()
    del desk.heard[:]
    desk.say(AskStatus(), b"rude")
    desk.service.turn()
    (status,) = desk.heard
    assert isinstance(status, Status)
    encode(status)
    report = status.report
    assert report["state"] == "ready"
    assert report["isa"] == native.isa()
    assert report["local_entries"] > 0
    assert report["layers"]["layers"] > 0


def test_a_client_is_told_which_requests_it_has_under_way(desk: Desk) -> None:
    desk.client(b"one")
    desk.client(b"two")
    for peer, request in ((b"one", "a"), (b"one", "b"), (b"two", "c")):
        desk.say(submit(request=request), peer)
    desk.service.turn()
    for peer, yours in ((b"one", ["a", "b"]), (b"two", ["c"])):
        del desk.heard[:]
        desk.say(AskStatus(), peer)
        desk.service.turn()
        assert [one.report["yours"] for one in desk.heard if isinstance(one, Status)] == [yours]


def test_finished_counts_its_own_lifetime(desk: Desk) -> None:
    first, second = desk.answer()[2].report, desk.answer()[2].report
    assert first["local_entries"] == second["local_entries"] > 0
    assert desk.service.report()["local_entries"] == 2 * first["local_entries"]


def test_requests_wait_for_the_expected_workers(tiny_model: Path) -> None:
    with desk_for(tiny_model, workers=1) as desk:
        desk.say(submit())
        for _ in range(10):
            desk.service.turn()
        assert desk.heard == []
        assert not desk.service.ready
        assert desk.service.report()["state"] == "waiting"


def test_stop_ends_what_is_under_way_with_a_reason(desk: Desk) -> None:
    desk.say(submit(max_tokens=100))
    desk.service.turn()
    desk.say(Stop())
    desk.service.turn()
    assert desk.cluster.closing
    desk.service.end("the coordinator is stopping")
    failed = desk.heard[-1]
    assert isinstance(failed, RequestFailed)
    assert failed.reason == "the coordinator is stopping"


def test_a_request_that_cannot_be_computed_fails_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    step = desk.engine.step

    def broken(chunks: list[Chunk], *rest: Any) -> list[F32]:
        if any(200 in chunk.ids for chunk in chunks):
            raise ExpertError(2, 7, "out of range")
        return step(chunks, *rest)

    _run_beside_a_bad_one(desk, monkeypatch, broken)
    assert _failure(desk).reason == "layer 2, expert 7: out of range"


def test_a_request_with_a_bad_row_fails_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    step = desk.engine.step

    def broken(chunks: list[Chunk], *rest: Any) -> list[F32]:
        for chunk in chunks:
            if 200 in chunk.ids:
                raise RowError("layer 1, row 3: not finite", chunk.sequence)
        return step(chunks, *rest)

    _run_beside_a_bad_one(desk, monkeypatch, broken)
    assert _failure(desk).reason == "layer 1, row 3: not finite"


def test_logits_that_nothing_can_be_chosen_from_fail_that_request(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    step = desk.engine.step

    def broken(chunks: list[Chunk], *rest: Any) -> list[F32]:
        logits = step(chunks, *rest)
        bad = [np.float32(np.nan) if 200 in chunk.ids else np.float32(1) for chunk in chunks]
        return [rows * factor for rows, factor in zip(logits, bad, strict=True)]

    _run_beside_a_bad_one(desk, monkeypatch, broken)
    assert "no token can be chosen" in _failure(desk).reason


def _run_beside_a_bad_one(desk: Desk, monkeypatch: pytest.MonkeyPatch, step: Callable[..., list[F32]]) -> None:
    """Three requests, of which `bad` has token 200; the others come to a good end."""
    expected = desk.answer()[:2]
    monkeypatch.setattr(desk.engine, "step", step)
    del desk.heard[:]
    for name, prompt in (("a", PROMPT), ("bad", [5, 200]), ("b", PROMPT)):
        desk.say(submit(request=name, prompt_ids=np.array(prompt, np.int32)))
    desk.run()
    for name in "ab":
        tokens = [one for one in desk.heard if isinstance(one, Token) and one.request == name]
        assert ([token.id for token in tokens], tokens[-1].sha256_logits) == expected


def _failure(desk: Desk) -> RequestFailed:
    (failed,) = [message for message in desk.heard if isinstance(message, RequestFailed)]
    assert failed.request == "bad"
    return failed


def test_times_of_a_request(tiny_model: Path) -> None:
    with local_engine(tiny_model) as engine:
        sequence = engine.new_sequence(PROMPT, 3)
        asked = submit(max_tokens=3)
        request = Request(1, b"c", asked, sampling_of(asked), sequence, Counters())
        assert request.spent_us(5.0) == (0, 0)
        request.chunk(10, 10.0)
        assert request.spent_us(11.0) == (1_000_000, 0)
        logits = np.zeros((1, 512), np.float32)
        assert [token.elapsed_us for token, _ in request.take(logits, (), 12.0)] == [0]
        assert [token.elapsed_us for token, _ in request.take(logits, (), 12.5)] == [500_000]
        ((token, reason),) = request.take(logits, (), 13.25)
        assert (token.elapsed_us, reason) == (750_000, "length")
        assert request.spent_us(99.0) == (2_000_000, 1_250_000)
