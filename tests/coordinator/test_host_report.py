"""What a machine answered before a launch, judged without one: whatever it says, problems are sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.config import PeerConfig, WorkerGroup
from coordinator.host_report import Asked, Expected, HostReport, problems
from coordinator.hosts import Host

HOST = Host(name="garage", user="me")
MODEL = Path("/models/m.gguf")
EXPECTED = Expected(version="1.2", protocol=7, model={"fingerprint": "f" * 16}, word="w" * 32)
LISTEN = "tcp://127.0.0.1:7600"


def asked(*parts: WorkerGroup | PeerConfig) -> Asked:
    return Asked.of(HOST, ("expertmesh",), parts or (WorkerGroup(name="box", host=HOST),), MODEL)


def told(**changes: Any) -> HostReport:
    sound = {
        "version": "1.2",
        "protocol": 7,
        "available_bytes": 8 << 30,
        "models": {str(MODEL): {"fingerprint": "f" * 16, "expert_bytes": 5 << 30}},
        "heard": {LISTEN: {"word": "w" * 32}},
    }
    return HostReport(output=f"a banner\n{json.dumps({**sound, **changes})}\n")


def judged(report: HostReport, *parts: WorkerGroup | PeerConfig) -> list[str]:
    return list(problems(asked(*parts), report, EXPECTED))


def test_a_sound_machine_has_no_problem() -> None:
    assert judged(told()) == []
    assert told().hears("w" * 32)
    assert not told().hears("v" * 32)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (HostReport(silent_s=60.0), "no answer within 60 s"),
        (HostReport(code=255, errors="a\nssh: no route\n"), "it cannot be reached: ssh: no route"),
        (HostReport(code=127, errors="bash: not found\n"), "there is no expertmesh: bash: not found"),
        (HostReport(code=126), "there is no expertmesh: nothing was said"),
        (
            HostReport(code=2, errors="error: No such command 'hosted'.\n"),
            "`expertmesh hosted check` exited with code 2: No such command 'hosted'.",
        ),
        (HostReport(output="[1]"), "`expertmesh hosted check` exited with code 0: no report was found in its output"),
        (
            HostReport(output="[" * 99_000),
            "`expertmesh hosted check` exited with code 0: no report was found in its output",
        ),
        (told(version="1.3"), "version of expertmesh is 1.3, expected 1.2"),
        (told(protocol=6), "protocol of expertmesh is 6, expected 7"),
        (told(models={str(MODEL): {"error": "there is none"}}), "there is none"),
        (
            told(models={str(MODEL): {"fingerprint": "e" * 16}}),
            f"{MODEL} is another model: its fingerprint is {'e' * 16}, expected {'f' * 16}",
        ),
        (told(models=[]), f"{MODEL} is another model: its fingerprint is None, expected {'f' * 16}"),
        (
            told(heard={LISTEN: {"word": "SSH-2.0"}}),
            f"{LISTEN}, which is to lead to the coordinator, is something else there",
        ),
        (
            told(heard={"tcp://0.0.0.0:7600": {"dialled": "tcp://10.0.0.1:7600", "error": "Connection refused"}}),
            "tcp://10.0.0.1:7600, where the coordinator is to listen, cannot be dialled from there: Connection refused",
        ),
    ],
)
def test_a_problem_names_the_machine_and_what_was_found(report: HostReport, said: str) -> None:
    assert judged(report) == [f"box on ssh://me@garage: {said}"]


@pytest.mark.parametrize("taken", [{}, {"tcp://10.0.0.2:7700": ""}, 3])
def test_where_weights_are_given_there_nobody_else_listens(taken: Any) -> None:
    giver = WorkerGroup(name="attic", host=HOST, cache=Path("/c"), give="tcp://10.0.0.2:7700")
    assert judged(told(taken=taken), giver) == []
    error = "Cannot assign requested address"
    assert judged(told(taken={giver.give: error}), giver) == [
        f"attic on ssh://me@garage: nobody can listen at {giver.give}, where weights are to be given: {error}"
    ]


def test_a_loopback_endpoint_that_nobody_listens_at_there_needs_a_tunnel_and_is_no_problem() -> None:
    report = told(heard={LISTEN: {"error": "Connection refused"}})
    assert judged(report) == []
    assert not report.hears("w" * 32)


@pytest.mark.parametrize(
    ("parts", "needed"),
    [
        ([WorkerGroup(name="a", count=2, ram_gib=4.0)], None),
        ([WorkerGroup(name="a", count=3, ram_gib=4.0)], 12),
        ([WorkerGroup(name="a", source="arena")], None),
        ([WorkerGroup(name="a", source="arena", count=2)], 10),
        ([WorkerGroup(name="a", source="shared", count=5)], None),
        ([WorkerGroup(name="a", source="shared"), WorkerGroup(name="b", ram_gib=3.5)], 8.5),
        ([WorkerGroup(name="a", source="mapped", count=9), PeerConfig(name="b", vram_gib=80.0)], None),
    ],
)
def test_copies_have_to_fit_in_memory(parts: list[WorkerGroup | PeerConfig], needed: float | None) -> None:
    names = ", ".join(part.name for part in parts)
    said = f"{names} on ssh://me@garage: copies of experts take {needed} GiB of memory, 8 GiB are available"
    assert judged(told(), *parts) == ([] if needed is None else [said])
    assert judged(told(available_bytes=None), *parts) == []


def test_local_copies_are_judged_beside_the_coordinators_model() -> None:
    models = {"/a": {"fingerprint": "e" * 16}, "/b": {"error": "no /b"}, str(MODEL): {"fingerprint": "f" * 16}}
    assert list(EXPECTED.local_problems(MODEL, models)) == [f"/a is not the model of {MODEL}", "no /b"]
