from __future__ import annotations

import pytest

from coordinator.question import Question
from coordinator.sampling import Sampling
from protocol.errors import RequestError


def ask(prompt: str | tuple[int, ...] = "x", stop: tuple[str, ...] = ()) -> Question:
    return Question(prompt=prompt, max_tokens=1, sampling=Sampling(), stop=stop)


def test_a_good_question() -> None:
    assert ask("naïve 🦊", stop=("\n", "é")).stop == ("\n", "é")
    assert ask((0,)).prompt == (0,)


@pytest.mark.parametrize(
    ("prompt", "stop", "error"),
    [
        ("", (), "the prompt is empty"),
        ((), (), "the prompt is empty"),
        ("ab\udcff", (), r"the prompt is not UTF-8: character 2 is '\\udcff'"),
        ("x", ("ok", ""), "a stop string is empty: some text is expected"),
        ("x", ("\ud800",), r"a stop string is not UTF-8: character 0 is '\\ud800'"),
    ],
)
def test_what_no_model_can_take(prompt: str | tuple[int, ...], stop: tuple[str, ...], error: str) -> None:
    with pytest.raises(RequestError, match=error):
        ask(prompt, stop)
