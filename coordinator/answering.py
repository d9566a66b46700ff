"""One question to a cluster, from text to text: tokenize, submit, follow, detokenize, report."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from coordinator.client import Client, Watch
from coordinator.detokenizer import Detokenizer
from coordinator.question import Question
from coordinator.tokenizer import Tokenizer
from coordinator.transcript import Transcript
from coordinator.window import check_context
from protocol.errors import RequestError
from protocol.messages import Finished, Prefilled, Token


class Listener(Protocol):
    """Who hears of the answer while it comes."""

    def prefilled(self, done: int, total: int) -> None:
        """Of `total` prompt tokens, `done` have been read."""

    def text(self, piece: str) -> None:
        """The next piece of text, never empty."""


def answer(
    client: Client, tokenizer: Tokenizer, question: Question, listener: Listener, watch: Watch, *, context: int
) -> dict[str, Any]:
    """Ask, and follow the answer to its end; returns its report (transcript.Transcript.report).

    `context` is how many positions the model has. RequestError if the question is bad or the answer fails. If anything
    ends this early, the request is cancelled.
    """
    prompt = question.prompt
    prompt_ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    if not prompt_ids:
        raise RequestError("the prompt is empty: one token at least is expected")
    check_context(len(prompt_ids), question.max_tokens, context)
    stop_ids = [] if question.ignore_eos else list(tokenizer.stop_ids)
    transcript = Transcript(prompt_ids, stop_ids, Detokenizer(tokenizer, question.stop))
    request = client.submit(prompt_ids, max_tokens=question.max_tokens, stop_ids=stop_ids, sampling=question.sampling)
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
