"""The work of `expertmesh generate`: start or find the cluster, ask it, show the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coordinator.cli.heard_warnings import HeardWarnings
from coordinator.cli.output import put
from coordinator.config import ClusterConfig
from coordinator.guard import Guard
from coordinator.interrupts import Interrupts
from coordinator.launch_options import OPENING_S
from coordinator.launcher import Launcher, launched

if TYPE_CHECKING:
    from coordinator.cli.answer_view import AnswerView
    from coordinator.question import Question

GREET_S = 30.0
"""Time for a coordinator that was just started to answer: reading its model's header is part of that. With a GPU,
OPENING_S."""
GREET_AGAIN_S = 5.0
"""Time for one that is up: it answers between two layers of a step. With a GPU, GREET_S: it may just be starting."""


def generate(config: ClusterConfig, question: Question, interrupts: Interrupts, *, shared: bool, as_json: bool) -> None:
    """Ask the cluster of `config` and print the answer. With `shared` it is up already, else it is started for this."""
    if shared:
        _ask(config, question, None, HeardWarnings(), interrupts, as_json=as_json)
    else:
        warnings = HeardWarnings()
        with launched(config, interrupts, warnings.on_line) as launcher:
            _ask(config, question, launcher, warnings, interrupts, as_json=as_json)


def _ask(
    config: ClusterConfig,
    question: Question,
    launcher: Launcher | None,
    warnings: HeardWarnings,
    interrupts: Interrupts,
    *,
    as_json: bool,
) -> None:
    with interrupts.held():  # loaded here, while the children start
        from coordinator.answering import answer, prompt_ids_of
        from coordinator.cli.answer_view import AnswerView
        from coordinator.client import Client, watch_nothing
        from coordinator.tokenizer import Tokenizer
        from protocol.keys import dial_keys
        from protocol.model import Model

    view = AnswerView(show_text=not as_json, interrupts=interrupts)
    with Model.open(config.model) as model, view:
        tokenizer = Tokenizer.of(model.files.metadata)
        prompt_ids = prompt_ids_of(question, tokenizer, model.geometry)
        mark, geometry = model.fingerprint, model.geometry.handshake()
        keys = dial_keys(config.keys)
        with Client(config.coordinator.listen, keys=keys, fingerprint=mark, geometry=geometry) as client:
            guard = Guard(launcher, client, view.tell) if launcher else watch_nothing

            def watch() -> None:
                guard()
                _show(warnings, view)

            client.greet(_greet_s(config, launcher), watch)
            report = answer(client, tokenizer, question, prompt_ids, view, watch)
        if as_json:
            put(json.dumps(report) + "\n")
        else:
            view.report(report)
        _show(warnings, view)  # an answer of few tokens may have come before them


def _show(warnings: HeardWarnings, view: AnswerView) -> None:
    for line in warnings.news():
        view.tell(line)


def _greet_s(config: ClusterConfig, launcher: Launcher | None) -> float:
    usual_s, with_gpu_s = (GREET_AGAIN_S, GREET_S) if launcher is None else (GREET_S, OPENING_S)
    return usual_s if config.coordinator.device == "cpu" else with_gpu_s
