"""Hello is refused with every mismatch named, found and expected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.hello import MAX_NAME, Terms, mismatches
from protocol.messages import PROTOCOL, Hello

TERMS = Terms(
    session="5e55",
    fingerprint="0123456789abcdef",
    geometry={"layers": 2, "experts": 4, "width": 64, "expert_width": 32},
    work="ipc://@work",
    max_entries=1024,
)

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
)


def test_a_worker_with_the_same_model_is_welcome() -> None:
    assert mismatches(GOOD, TERMS) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"protocol": PROTOCOL + 1}, [["protocol", str(PROTOCOL + 1), str(PROTOCOL)]]),
        ({"role": "boss"}, [["role", "boss", "worker or client"]]),
        ({"name": ""}, [["name", "''", f"1 to {MAX_NAME} printable characters"]]),
        ({"name": "a\nb"}, [["name", "'a\\nb'", f"1 to {MAX_NAME} printable characters"]]),
        ({"incarnation": ""}, [["incarnation", "nothing", "fresh random hex"]]),
        ({"fingerprint": "ffff"}, [["fingerprint", "ffff", TERMS.fingerprint]]),
        ({"fingerprint": ""}, [["fingerprint", "nothing", TERMS.fingerprint]]),
        ({"geometry": {**TERMS.geometry, "experts": 8}}, [["geometry.experts", "8", "4"]]),
        ({"geometry": {"layers": 2, "experts": 4, "width": 64}}, [["geometry.expert_width", "nothing", "32"]]),
    ],
)
def test_each_mismatch_is_named_with_both_values(change: dict[str, Any], expected: list[list[str]]) -> None:
    assert mismatches(replace(GOOD, **change), TERMS) == expected


def test_all_mismatches_are_named_at_once() -> None:
    wrong = replace(GOOD, fingerprint="ffff", geometry={"layers": 9, "experts": 9, "width": 9, "expert_width": 9})
    assert [field for field, _, _ in mismatches(wrong, TERMS)] == [
        "fingerprint",
        "geometry.layers",
        "geometry.experts",
        "geometry.width",
        "geometry.expert_width",
    ]


def test_a_client_need_not_have_the_model_but_must_not_have_another() -> None:
    client = replace(GOOD, role="client", fingerprint="", geometry={})
    assert mismatches(client, TERMS) == []
    assert mismatches(replace(client, fingerprint="ffff", geometry=dict(TERMS.geometry)), TERMS) == [
        ["fingerprint", "ffff", TERMS.fingerprint]
    ]


def test_a_worker_must_make_a_claim() -> None:
    assert len(mismatches(replace(GOOD, fingerprint="", geometry={}), TERMS)) == 5
