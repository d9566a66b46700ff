"""One question to a cluster, from text to text: tokenize, submit, follow, detokenize, report."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from coordinator.client import Client, Watch
from coordinator.detokenizer import Detokenizer
from coordinator.question import Question
from coordinator.tokenizer import Tokenizer
from coordinator.transcript import Transcript
from coordinator.window import check_prompt
from protocol.errors import RequestError
from protocol.geometry import Geometry
from protocol.messages import Finished, Prefilled, Token


class Listener(Protocol):
    """Who hears of the answer while it comes."""

    def prefilled(self, done: int, total: int) -> None:
        """Of `total` prompt tokens, `done` have been read."""

    def text(self, piece: str) -> None:
        """The next piece of text, never empty."""


def prompt_ids_of(question: Question, tokenizer: Tokenizer, geometry: Geometry) -> list[int]:
    """The prompt as token ids. RequestError for what the model has no ids or no room for."""
    prompt = question.prompt
    if isinstance(prompt, str) and (least := tokenizer.least_tokens(prompt)) > geometry.context:
        raise RequestError(  # to find out the number of tokens can take minutes
            f"the prompt's {len(prompt)} characters are {least} tokens at least, the model's context has "
            f"{geometry.context} positions"
        )
    prompt_ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    check_prompt(prompt_ids, question.max_tokens, geometry)
    return prompt_ids


def answer(
    client: Client, tokenizer: Tokenizer, question: Question, prompt_ids: list[int], listener: Listener, watch: Watch
) -> dict[str, Any]:
    """Ask, and follow the answer to its end; returns its report (transcript.Transcript.report).

    RequestError if the answer fails. If anything ends this early, the request is cancelled.
    """
    stop_ids = [] if question.ignore_eos else list(tokenizer.stop_ids)
    transcript = Transcript(prompt_ids, stop_ids, Detokenizer(tokenizer, question.stop))
    request = client.submit(
        prompt_ids,
        max_tokens=question.max_tokens,
        stop_ids=stop_ids,
        sampling=question.sampling,
        drafts=question.drafts,
    )
    try:
        finished = _follow(client, request, transcript, listener, watch)
    except BaseException:
        with suppress(RequestError):  # what went wrong first is what counts
            client.cancel(request)
        raise
    _show(listener, transcript.finish())
    return transcript.report(finished)


def _follow(client: Client, request: str, transcript: Transcript, listener: Listener, watch: Watch) -> Finished:
    for event in client.events(request, watch):
        match event:
            case Prefilled(done=done, total=total):
                listener.prefilled(done, total)
            case Token():
                wanted_more = not transcript.stopped
                _show(listener, transcript.push(event))
                if wanted_more and transcript.stopped:
                    client.cancel(request)
            case Finished():
                return event
    raise AssertionError("the last event is Finished, or an exception")


def _show(listener: Listener, text: str) -> None:
    if text:
        listener.text(text)
