"""Hello is refused with every mismatch named, found and expected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from message_examples import LONGEST_TEXT

from coordinator.hello import MAX_NAME, Terms, mismatches
from protocol.messages import ALL_EXPERTS, NO_EXPERTS, PROTOCOL, Hello

TERMS = Terms(
    session="5e55",
    fingerprint="0123456789abcdef",
    geometry={"layers": 2, "dense_layers": 0, "experts": 4, "width": 64, "expert_width": 32},
    work="ipc://@work",
)

SAME_FILE = f"{TERMS.fingerprint}: the coordinator's model, with the same files under the same names"

GOOD = Hello(
    protocol=PROTOCOL,
    role="worker",
    name="box-a-0",
    incarnation="a1",
    pid=4242,
    host="box-a",
    fingerprint=TERMS.fingerprint,
    geometry=dict(TERMS.geometry),
    isa="avx2",
    threads=2,
    entry_ns=0,
    memory=-1,
    room=-1,
    pages="0123456789abcdef",
    able=ALL_EXPERTS,
    held=NO_EXPERTS,
)


@pytest.mark.parametrize(("role", "room"), [("worker", -1), ("peer", 0), ("peer", 5 << 30), ("lookahead", 0)])
def test_whoever_holds_experts_of_the_same_model_is_welcome(role: str, room: int) -> None:
    assert mismatches(replace(GOOD, role=role, room=room), TERMS) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"protocol": PROTOCOL + 1}, [["protocol", str(PROTOCOL + 1), str(PROTOCOL)]]),
        ({"role": "boss"}, [["role", "boss", "worker, peer, lookahead or client"]]),
        ({"threads": -1}, [["threads", "-1", "0 to 1024"]]),
        ({"threads": 1025}, [["threads", "1025", "0 to 1024"]]),
        ({"entry_ns": -1}, [["entry_ns", "-1", "0 to 1000000000000"]]),
        ({"room": -2}, [["room", "-2", "-1 or more"]]),
        ({"memory": -2}, [["memory", "-2", "-1 or more"]]),
        ({"able": np.ones((2, 5), np.uint8)}, [["able", "for (2, 5) layers and experts", "(2, 4), or (0, 0)"]]),
        ({"held": np.ones((2, 5), np.uint8)}, [["held", "for (2, 5) layers and experts", "(2, 4), or (0, 0)"]]),
        ({"name": ""}, [["name", "''", f"1 to {MAX_NAME} printable characters"]]),
        ({"name": "a\nb"}, [["name", "'a\\nb'", f"1 to {MAX_NAME} printable characters"]]),
        ({"incarnation": ""}, [["incarnation", "''", f"1 to {MAX_NAME} printable characters"]]),
        ({"host": "h" * 65}, [["host", repr("h" * 65), f"0 to {MAX_NAME} printable characters"]]),
        ({"isa": "a\n"}, [["isa", "'a\\n'", f"0 to {MAX_NAME} printable characters"]]),
        ({"geometry": TERMS.geometry | {"heads": 2}}, [["geometry", "1 unknown numbers", "none"]]),
        ({"fingerprint": "ffff"}, [["fingerprint", "ffff", SAME_FILE]]),
        ({"fingerprint": ""}, [["fingerprint", "nothing", SAME_FILE]]),
        ({"geometry": {**TERMS.geometry, "experts": 8}}, [["geometry.experts", "8", "4"]]),
        (
            {"geometry": {"layers": 2, "dense_layers": 0, "experts": 4, "width": 64}},
            [["geometry.expert_width", "nothing", "32"]],
        ),
    ],
)
def test_each_mismatch_is_named_with_both_values(change: dict[str, Any], expected: list[list[str]]) -> None:
    assert mismatches(replace(GOOD, **change), TERMS) == expected


def test_all_mismatches_are_named_at_once() -> None:
    wrong = replace(
        GOOD, fingerprint="ffff", geometry={"layers": 9, "dense_layers": 9, "experts": 9, "width": 9, "expert_width": 9}
    )
    assert [field for field, _, _ in mismatches(wrong, TERMS)] == [
        "fingerprint",
        "geometry.layers",
        "geometry.dense_layers",
        "geometry.experts",
        "geometry.width",
        "geometry.expert_width",
    ]


def test_a_share_is_welcome() -> None:
    assert mismatches(replace(GOOD, able=np.zeros((2, 4), np.uint8)), TERMS) == []


def test_a_client_need_not_have_the_model_but_must_not_have_another() -> None:
    client = replace(GOOD, role="client", fingerprint="", geometry={})
    assert mismatches(client, TERMS) == []
    assert mismatches(replace(client, fingerprint="ffff", geometry=dict(TERMS.geometry)), TERMS) == [
        ["fingerprint", "ffff", SAME_FILE]
    ]


@pytest.mark.parametrize("role", ["worker", "peer", "lookahead"])
def test_who_holds_experts_must_make_a_claim(role: str) -> None:
    assert len(mismatches(replace(GOOD, role=role, fingerprint="", geometry={}), TERMS)) == 6


@pytest.mark.parametrize("field", ["role", "name", "incarnation", "host", "fingerprint", "isa"])
@pytest.mark.parametrize("role", ["worker", "peer", "client"])
def test_no_text_is_too_long_to_be_refused_in_a_few_words(field: str, role: str) -> None:
    claim = replace(GOOD, **({"role": role} | {field: LONGEST_TEXT}))
    wrong = mismatches(claim, TERMS)
    assert [name for name, _, _ in wrong] == [field]
    assert all(len(text) < 1000 for text in wrong[0])
