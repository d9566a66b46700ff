"""Which tokens an answer keeps, and what its report says; the tokenizer is a table of bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from coordinator.detokenizer import Detokenizer
from coordinator.transcript import Transcript
from protocol.messages import Finished, Token

END = 99


class Letters:
    """Token 0 is "a", 1 is "b" and so on; END is a control token."""

    def token_bytes(self, id: int) -> bytes:
        return bytes([ord("a") + id])

    def is_control(self, id: int) -> bool:
        return id == END


def transcript(*stop: str, stop_ids: tuple[int, ...] = (END,)) -> Transcript:
    letters: Any = Letters()
    return Transcript([7, 8], stop_ids, Detokenizer(letters, stop))


def token(index: int, id: int) -> Token:
    return Token(request="r", index=index, id=id, sha256_logits=f"digest {index}", elapsed_us=1000 * index)


def finished(reason: str = "length", **report: object) -> Finished:
    return Finished(request="r", reason=reason, prompt_us=4000, decode_us=0, report=report)


def test_a_whole_answer() -> None:
    one = transcript()
    assert [one.push(token(index, id)) for index, id in enumerate([0, 1, 2])] == ["a", "b", "c"]
    assert one.finish() == ""
    facts = {"isa": "avx2", "threads": 2, "device": "cuda:0", "device_entries": 6, "local_entries": 5, "workers": []}
    report = one.report(finished(drafts={"steps": 1, "drafted": 3, "accepted": 1}, **facts))
    assert report == {
        "prompt_ids": [7, 8],
        "ids": [0, 1, 2],
        "text": "abc",
        "finish_reason": "length",
        "sha256_ids": hashlib.sha256(np.array([0, 1, 2], "<i4").tobytes()).hexdigest(),
        "sha256_logits": "digest 2",
        "prompt_tps": 500.0,
        "decode_tps": 666.67,
        "drafts": {"steps": 1, "drafted": 3, "accepted": 1, "acceptance": 0.3333},
        "isa": "avx2",
        "threads": 2,
        "device": "cuda:0",
        "device_entries": 6,
        "local_entries": 5,
        "workers": [],
    }


def test_the_token_that_completes_a_stop_string_is_the_last_that_is_kept() -> None:
    one = transcript("bc")
    assert [one.push(token(index, id)) for index, id in enumerate([0, 1])] == ["a", ""]
    assert not one.stopped
    assert one.push(token(2, 2)) == ""
    assert one.stopped
    assert one.push(token(3, 3)) == ""
    assert one.finish() == ""
    report = one.report(finished("cancelled"))
    assert (report["ids"], report["text"], report["finish_reason"]) == ([0, 1, 2], "a", "stop")
    assert report["sha256_logits"] == "digest 2"


def test_text_held_back_comes_at_the_end() -> None:
    one = transcript("bcd")
    assert [one.push(token(index, id)) for index, id in enumerate([1, 2])] == ["", ""]
    assert one.finish() == "bc"
    assert one.report(finished())["text"] == "bc"


def test_a_token_that_ends_the_answer_is_an_id_but_no_text() -> None:
    one = transcript(stop_ids=(2,))
    one.push(token(0, 0))
    assert one.push(token(1, 2)) == ""
    report = one.report(finished("stop"))
    assert (report["ids"], report["text"], report["finish_reason"]) == ([0, 2], "a", "stop")


def test_an_answer_without_tokens_or_times() -> None:
    one = transcript()
    report = one.report(finished("cancelled"))
    assert report["ids"] == []
    assert report["sha256_ids"] == report["sha256_logits"] == hashlib.sha256().hexdigest()
    assert report["decode_tps"] is None
    assert report["drafts"] == {"steps": 0, "drafted": 0, "accepted": 0, "acceptance": None}


def test_of_workers_only_what_is_asked_for_is_told() -> None:
    worker = {"name": "w", "pid": 1, "experts": 2, "calls": 3, "entries": 4, "busy_s": 0.12345678, "wait_s": 0, "x": 9}
    assert transcript().report(finished(workers=[worker]))["workers"] == [
        {"name": "w", "pid": 1, "experts": 2, "calls": 3, "entries": 4, "busy_s": 0.123457, "wait_s": 0}
    ]
