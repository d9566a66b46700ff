"""Requests with drafts against a real model: every token, digest and error is what it is without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import PROMPT, Desk, desk_for, submit
from told_drafts import Tell, every_third_wrong, right, told_drafts, wrong

from coordinator.engine import Chunk, RowError
from protocol.errors import ExpertError, RequestError
from protocol.messages import AS_CONFIGURED, F32, Cancel, Finished, Prefilled, RequestFailed, Token

PROMPTS = [PROMPT, [7], [1, 2, 3] * 5, [200, 100]]
GREEDY: dict[str, Any] = {}
SAMPLED = {"temperature": 1.0, "seed": 5}
CHOOSY = {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "repeat_penalty": 1.3, "repeat_window": 8}
PENALISED = {"repeat_penalty": 1.5, "repeat_window": 12}
FOND = {"temperature": 0.3, "repeat_penalty": 0.1, "repeat_window": 2}
"""Of what was said just now: random weights say it again and again."""
WAYS = pytest.mark.parametrize(
    "way", [GREEDY, SAMPLED, CHOOSY, PENALISED], ids=["greedy", "sampled", "choosy", "again"]
)
TELLS = pytest.mark.parametrize("tell", [right, wrong, every_third_wrong])
TOKENS = 24

Told = Sequence[tuple[int, str]]


def told(desk: Desk, request: str = "r") -> Told:
    """The tokens of a request, each with the digest up to it."""
    return [(token.id, token.sha256_logits) for token in desk.tokens(request)]


def counts(desk: Desk, request: str = "r") -> dict[str, int]:
    """What drafting came to."""
    (finished,) = [one for one in desk.heard if isinstance(one, Finished) and one.request == request]
    return dict(finished.report["drafts"])


def ask_for(desk: Desk, prompt: Sequence[int], **change: Any) -> Told:
    desk.ask(prompt_ids=np.array(prompt, np.int32), **{"max_tokens": TOKENS, **change})
    return told(desk)


def without(model: Path, **change: Any) -> dict[Sequence[int], Told]:
    """What each of PROMPTS gives alone and without drafts."""
    with desk_for(model) as desk:
        return {tuple(prompt): ask_for(desk, prompt, **change) for prompt in PROMPTS}


def ids_of(expected: dict[Sequence[int], Told]) -> dict[Sequence[int], list[int]]:
    return {prompt: [id for id, _ in tokens] for prompt, tokens in expected.items()}


@WAYS
@TELLS
def test_tokens_and_digests_are_those_without_drafts(
    way: dict[str, Any], tell: Tell, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model, **way)
    told_drafts(monkeypatch, ids_of(expected), tell)
    with desk_for(tiny_model) as desk:
        for prompt in PROMPTS:
            before = desk.engine.steps
            assert ask_for(desk, prompt, drafts=5, **way) == expected[tuple(prompt)]
            seen = counts(desk)
            assert seen["steps"] == desk.engine.steps - before - 1
            assert seen["steps"] + seen["accepted"] == TOKENS - 1
            if tell is right:
                assert seen == {"steps": 4, "drafted": 19, "accepted": 19}, "5 at a time; the last comes by itself"
            if tell is wrong:
                assert (seen["steps"], seen["accepted"]) == (TOKENS - 1, 0)
            if tell is every_third_wrong:
                assert seen["accepted"] == 15


@WAYS
@pytest.mark.parametrize("chunk", [4, 6, 64])
def test_several_sequences_with_drafts_share_steps(
    way: dict[str, Any], chunk: int, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model, **way)
    told_drafts(monkeypatch, ids_of(expected), every_third_wrong)
    with desk_for(tiny_model, chunk=chunk) as desk:
        for number, prompt in enumerate(PROMPTS):
            ids = np.array(prompt, np.int32)
            desk.say(submit(request=str(number), prompt_ids=ids, max_tokens=TOKENS, drafts=number * 2, **way))
        desk.run()
        for number, prompt in enumerate(PROMPTS):
            assert told(desk, str(number)) == expected[tuple(prompt)]
        assert desk.service.report()["drafts"]["accepted"] == sum(counts(desk, str(n))["accepted"] for n in range(4))
        assert counts(desk, "0")["drafted"] == 0, "it wanted none"
        if chunk > 4:
            assert counts(desk, "3")["accepted"] > 0


@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize("way", [GREEDY, SAMPLED, FOND])
def test_what_is_looked_up_changes_nothing_but_the_steps(way: dict[str, Any], kv: str, tiny_model: Path) -> None:
    with desk_for(tiny_model, kv=kv) as desk:
        prompt = [3, 1, 4, 1, 5] * 8
        expected = ask_for(desk, prompt, max_tokens=100, **way)
        assert ask_for(desk, prompt, max_tokens=100, drafts=8, **way) == expected
        if way is FOND:
            assert counts(desk)["accepted"] > 50


@TELLS
@pytest.mark.parametrize("tokens", [1, 2, 3, 7])
def test_an_answer_is_not_longer_than_it_may_be(
    tell: Tell, tokens: int, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), tell)
    with desk_for(tiny_model) as desk:
        for prompt in PROMPTS:
            assert ask_for(desk, prompt, max_tokens=tokens, drafts=64) == expected[tuple(prompt)][:tokens]
            assert isinstance(desk.heard[-1], Finished)
            assert desk.heard[-1].reason == "length"


def test_the_whole_context_can_be_used_with_drafts(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk_for(tiny_model) as desk:
        prompt = [1] * (desk.engine._geometry.context - 9)
        expected = ask_for(desk, prompt, max_tokens=9)
        told_drafts(monkeypatch, {tuple(prompt): [id for id, _ in expected]}, right)
        assert ask_for(desk, prompt, max_tokens=9, drafts=64) == expected
        assert counts(desk) == {"steps": 1, "drafted": 7, "accepted": 7}


@WAYS
@pytest.mark.parametrize("place", [1, 3, 4, 9])
def test_a_stop_id_in_the_middle_of_a_run_ends_the_answer(
    way: dict[str, Any], place: int, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model, **way)
    told_drafts(monkeypatch, ids_of(expected), right)
    with desk_for(tiny_model) as desk:
        for prompt in PROMPTS:
            stop = expected[tuple(prompt)][place][0]
            desk.ask(prompt_ids=np.array(prompt, np.int32), max_tokens=TOKENS, stop_ids=[stop], **way)
            heard = [(type(one).__name__, getattr(one, "reason", "")) for one in desk.heard]
            tokens = told(desk)
            assert ask_for(desk, prompt, stop_ids=[stop], drafts=6, **way) == tokens
            assert [(type(one).__name__, getattr(one, "reason", "")) for one in desk.heard] == heard
            assert heard[-1] == ("Finished", "stop")


def test_drafts_take_no_room_from_prompts(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), right)
    windows: list[list[tuple[int, int]]] = []
    with desk_for(tiny_model, chunk=8) as desk:
        step = desk.engine.step

        def noted(chunks: list[Chunk], *rest: Any) -> list[F32]:
            windows.append([(len(chunk.known), chunk.drafts) for chunk in chunks])
            return step(chunks, *rest)

        monkeypatch.setattr(desk.engine, "step", noted)
        desk.say(submit(request="a", max_tokens=TOKENS, drafts=64))
        while not desk.tokens("a"):
            desk.service.turn()
        del windows[:]
        desk.say(submit(request="b", prompt_ids=np.array([1, 2, 3] * 5, np.int32), max_tokens=2, drafts=64))
        desk.run()
        assert windows[:4] == [[(1, 0), (7, 0)], [(1, 0), (7, 0)], [(1, 6), (1, 0)], [(1, 6), (1, 0)]]
        assert told(desk, "a") == expected[tuple(PROMPT)]
        assert told(desk, "b") == expected[(1, 2, 3) * 5][:2]


def test_the_coordinators_number_is_that_of_requests_that_name_none(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), right)
    with desk_for(tiny_model, drafts=5) as desk:
        for drafts, drafted in ((AS_CONFIGURED, 19), (0, 0), (22, 22)):
            assert ask_for(desk, PROMPT, drafts=drafts) == expected[tuple(PROMPT)]
            assert counts(desk)["drafted"] == drafted


@pytest.mark.parametrize("drafts", [-2, 65, 10**9])
def test_a_number_of_drafts_that_cannot_be_is_refused(drafts: int, tiny_model: Path) -> None:
    with desk_for(tiny_model) as desk:
        (failed,) = desk.ask(drafts=drafts)
        assert isinstance(failed, RequestFailed)
        assert failed.reason == f"drafts is {drafts}, expected 0 to 64, or -1 for the coordinator's number"


def test_several_tokens_of_one_step_take_its_time_together(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), right)
    with desk_for(tiny_model) as desk:
        step = desk.engine.step

        def slow(chunks: list[Chunk], *rest: Any) -> list[F32]:
            desk.cluster._clock.now += 0.5  # type: ignore[attr-defined]
            return step(chunks, *rest)

        monkeypatch.setattr(desk.engine, "step", slow)
        desk.ask(max_tokens=8, drafts=2)
        assert [token.elapsed_us for token in desk.tokens()] == [0, 500_000, 0, 0, 500_000, 0, 0, 500_000]
        finished = desk.heard[-1]
        assert isinstance(finished, Finished)
        assert (finished.prompt_us, finished.decode_us) == (500_000, 1_500_000)


def test_a_cancelled_request_ends_after_the_run_it_has(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), right)
    with desk_for(tiny_model) as desk:
        desk.say(submit(max_tokens=TOKENS, drafts=4))
        for _ in range(3):
            desk.service.turn()
        desk.say(Cancel(request="r"))
        desk.run()
        assert told(desk) == expected[tuple(PROMPT)][:11]
        assert isinstance(desk.heard[-1], Finished)
        assert desk.heard[-1].reason == "cancelled"


def test_a_client_that_is_gone_in_the_middle_of_a_run_is_dropped(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), right)
    with desk_for(tiny_model) as desk:

        def hear(message: Any) -> None:
            desk.heard.append(message)
            if isinstance(message, Token) and message.index == 2:
                del desk.control.peers[b"c"]

        desk.control.peers[b"c"] = hear
        desk.say(submit(max_tokens=TOKENS, drafts=8))
        desk.run()
        assert told(desk) == expected[tuple(PROMPT)][:3]
        assert desk.service.report()["requests"] == 0


# --- what goes wrong --------------------------------------------------------------------------------------------------


def row_error(chunk: Chunk) -> Exception:
    return RowError("layer 1, row 3: not finite", chunk.sequence)


def expert_error(chunk: Chunk) -> Exception:
    return ExpertError(2, 7, "out of range")


def memory_error(chunk: Chunk) -> Exception:
    return RequestError("no memory is left")


ERRORS = pytest.mark.parametrize("error", [row_error, expert_error, memory_error])


def failing(desk: Desk, monkeypatch: pytest.MonkeyPatch, bad: Callable[[Chunk], bool], error: Any) -> None:
    """Steps fail while they have such chunks."""
    step = desk.engine.step

    def broken(chunks: list[Chunk], *rest: Any) -> list[F32]:
        for chunk in chunks:
            if bad(chunk):
                raise error(chunk)
        return step(chunks, *rest)

    monkeypatch.setattr(desk.engine, "step", broken)


@ERRORS
@TELLS
def test_a_step_that_drafts_make_fail_is_computed_without_them(
    error: Any, tell: Tell, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), tell)
    with desk_for(tiny_model) as desk:
        tried: list[int] = []
        failing(desk, monkeypatch, lambda chunk: chunk.drafts > 2 and not tried.append(chunk.drafts), error)
        for number, prompt in enumerate(PROMPTS):
            ids = np.array(prompt, np.int32)
            desk.say(submit(request=str(number), prompt_ids=ids, max_tokens=TOKENS, drafts=1 + 3 * (number % 2)))
        desk.run()
        for number, prompt in enumerate(PROMPTS):
            assert told(desk, str(number)) == expected[tuple(prompt)]
        assert 1 <= len(tried) <= 2, "of two requests, each costs one step at most"


@ERRORS
def test_a_row_that_there_is_without_drafts_fails_its_request_and_no_other(
    error: Any, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), right)
    last = len([7]) + 9  # the position of its last sound row

    def bad(chunk: Chunk) -> bool:
        return chunk.sequence.ids[:1] == [7] and chunk.sequence.position + len(chunk.ids) > last

    with desk_for(tiny_model) as desk:
        failing(desk, monkeypatch, bad, error)
        for name, prompt in (("a", PROMPT), ("bad", [7])):
            ids = np.array(prompt, np.int32)
            desk.say(submit(request=name, prompt_ids=ids, max_tokens=TOKENS, drafts=4))
        desk.run()
        assert told(desk, "a") == expected[tuple(PROMPT)]
        assert told(desk, "bad") == expected[(7,)][:10], "as many as without drafts"
        (failed,) = [one for one in desk.heard if isinstance(one, RequestFailed)]
        assert (failed.request, failed.reason) == ("bad", str(error(Chunk(sequence=None, ids=[]))))  # type: ignore[arg-type]


@TELLS
def test_a_token_that_cannot_be_chosen_fails_after_those_that_can(
    tell: Tell, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A penalty so small that a logit becomes infinite, once its token is recent."""
    expected = without(tiny_model)
    told_drafts(monkeypatch, ids_of(expected), tell)
    settings = {"repeat_penalty": 1e-300 / np.float64(1e10), "repeat_window": 1}
    with desk_for(tiny_model) as desk:
        desk.ask(max_tokens=TOKENS, **settings)
        heard = [(type(one).__name__, getattr(one, "id", getattr(one, "reason", ""))) for one in desk.heard]
        desk.ask(max_tokens=TOKENS, drafts=5, **settings)
        assert [(type(one).__name__, getattr(one, "id", getattr(one, "reason", ""))) for one in desk.heard] == heard
        assert heard[-1][0] == "RequestFailed"


def test_progress_is_told_while_others_draft(tiny_model: Path) -> None:
    with desk_for(tiny_model, chunk=4) as desk:
        desk.say(submit(request="a", drafts=8))
        desk.say(submit(request="b", drafts=8, temperature=0.5))
        desk.run()
        done = [one.done for one in desk.heard if isinstance(one, Prefilled) and one.request == "b"]
        assert done == sorted(done)
        assert done[-1] == len(PROMPT)
