"""What a weights process says to whom, and what it refuses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from open_cache import open_cache
from packs import shares_of

from expert_worker.weights.directory import LATELY_S, MOST, NAMED, Directory
from expert_worker.weights.giving import DIGEST_SHARE, Giving, bytes_for, check_name
from expert_worker.weights.offering import Offering
from expert_worker.weights.place import Place
from expert_worker.weights.rate import BURST_S, Rate
from protocol.errors import ConfigError, ModelError
from protocol.messages import (
    PROTOCOL,
    AskDigests,
    AskHolders,
    AskModel,
    AskStatus,
    Digests,
    FetchPiece,
    Message,
    OfferPieces,
    PieceBytes,
    PieceFailed,
    Refused,
)
from protocol.model import Model
from protocol.wire import new_pair


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copy(tiny_model, tmp_path / "m.gguf"))


@pytest.fixture
def giving(model: Path) -> Iterator[Giving]:
    with Model.open(model) as opened:
        yield Giving(opened)


def fetch(giving: Giving, **changes: object) -> FetchPiece:
    asked = FetchPiece(fingerprint=giving.offer.fingerprint, file=0, offset=4096, bytes=1000)
    return replace(asked, **changes)  # type: ignore[arg-type]


def test_an_offer_has_name_size_and_head(giving: Giving, model: Path) -> None:
    offer = giving.answer(AskModel(protocol=PROTOCOL))
    assert offer is giving.offer
    assert (giving.offer.names, giving.offer.sizes) == (["m.gguf"], [model.stat().st_size])
    with Model.open(model) as opened:
        assert giving.offer.heads == [min(tensor.offset for tensor in opened.files.tensors.values())]
        assert giving.offer.fingerprint == opened.fingerprint


def test_another_protocol_is_refused_by_both_numbers(giving: Giving) -> None:
    refused = giving.answer(AskModel(protocol=PROTOCOL + 1))
    assert isinstance(refused, Refused)
    assert refused.mismatches == [["protocol", str(PROTOCOL + 1), str(PROTOCOL)]]


def test_a_piece_is_what_the_file_has_and_its_sum(giving: Giving, model: Path) -> None:
    answer = giving.answer(fetch(giving))
    assert isinstance(answer, PieceBytes)
    data = np.fromfile(model, np.uint8, 1000, offset=4096)
    np.testing.assert_array_equal(answer.data, data)
    assert (answer.file, answer.offset, answer.sha256) == (0, 4096, sha256(data.tobytes()).hexdigest())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fingerprint": "0" * 16}, "model 0000000000000000 is asked for, and"),
        ({"file": 1}, "file 1 has no bytes 4096 to 5096"),
        ({"offset": 1 << 40}, "file 0 has no bytes 1099511627776 to"),
        ({"offset": 2**63 - 1}, "file 0 has no bytes"),
    ],
)
def test_what_is_not_there_is_refused(changes: dict[str, object], reason: str, giving: Giving) -> None:
    answer = giving.answer(fetch(giving, **changes))
    assert isinstance(answer, PieceFailed)
    assert answer.reason.startswith(reason)


@pytest.mark.parametrize("change", ["touched", "shrunk"])
def test_a_model_that_changed_is_refused_by_name(change: str, giving: Giving, model: Path) -> None:
    if change == "touched":
        os.utime(model, ns=(1, 1))
    else:
        os.truncate(model, 4500)
    for asked in (fetch(giving), AskModel(protocol=PROTOCOL)):
        answer = giving.answer(asked)
        assert isinstance(answer, PieceFailed)
        assert str(model) in answer.reason


def test_nothing_else_is_answered(giving: Giving) -> None:
    assert giving.answer(AskStatus()) is None


def test_digests_are_those_of_the_pieces(giving: Giving, model: Path) -> None:
    offsets, counts = np.array([4096, 100, 0], np.int64), np.array([1000, 1, 1 << 20], np.int64)
    asked = AskDigests(fingerprint=giving.offer.fingerprint, file=0, offset=offsets, bytes=counts)
    answer = giving.answer(asked)
    assert isinstance(answer, Digests)
    data = model.read_bytes()
    expected = [sha256(data[o : o + n]).digest() for o, n in zip(offsets.tolist(), counts.tolist(), strict=True)]
    assert [row.tobytes() for row in answer.sha256] == expected
    os.utime(model, ns=(1, 1))
    assert isinstance(giving.answer(asked), PieceFailed)


def test_a_cache_gives_what_is_there_and_nothing_else(tiny_model: Path, tmp_path: Path) -> None:
    with open_cache(tiny_model, tmp_path / "cache") as (cache, filling):
        piece = cache.grid.piece(7)
        cache.write(7, np.fromfile(tiny_model, np.uint8, piece.bytes, offset=piece.offset))
        cache.commit()
        giving = Giving(filling, cache)
        here = fetch(giving, offset=piece.offset, bytes=piece.bytes)
        assert isinstance(giving.answer(here), PieceBytes)
        elsewhere = cache.grid.piece(8)
        for asked in (
            replace(here, offset=elsewhere.offset, bytes=elsewhere.bytes),
            replace(here, bytes=piece.bytes - 1),
            replace(here, offset=0),
        ):
            answer = giving.answer(asked)
            assert isinstance(answer, PieceFailed)
            assert answer.reason == "it is not in this cache"
        for about_the_model in (AskModel(protocol=PROTOCOL), AskHolders(fingerprint=giving.offer.fingerprint)):
            assert giving.answer(about_the_model) is None


def test_offers_are_kept_for_a_while_and_named(giving: Giving, model: Path) -> None:
    def offer(number: int, **changes: object) -> OfferPieces:
        made = OfferPieces(
            fingerprint=giving.offer.fingerprint, endpoint=f"ipc://@{number}", key="", have=np.ones((4, 16), np.uint8)
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def named(now: float) -> list[str]:
        return directory.holders(now).endpoints

    directory = Directory((4, 16))
    assert directory.take(offer(0), 0.0) == ""
    assert directory.take(offer(1, have=np.zeros((4, 16), np.uint8)), 0.0) == ""
    assert "are offered, the model has (4, 16)" in directory.take(offer(2, have=np.ones((4, 15), np.uint8)), 0.0)
    assert "endpoint 'tcp://8.8.8.8:1'" in directory.take(offer(3, endpoint="tcp://8.8.8.8:1"), 0.0)
    assert named(1.0) == ["ipc://@0"]
    assert named(LATELY_S) == []
    for number in range(MOST):
        assert directory.take(offer(number), 100.0) == ""
    assert directory.take(offer(MOST), 100.0) == f"{MOST} others give already"
    assert directory.take(offer(5), 101.0) == ""
    seen = [named(101.0) for _ in range(MOST // NAMED)]
    assert all(len(some) == NAMED for some in seen)
    assert len({one for some in seen for one in some}) == MOST
    other = giving.answer(offer(0, fingerprint="0" * 16))
    assert isinstance(other, PieceFailed)


def test_who_has_a_key_may_be_on_another_machine_and_nobody_takes_his_place(giving: Giving) -> None:
    def take(endpoint: str, key: str) -> str:
        have = np.ones((4, 16), np.uint8)
        offer = OfferPieces(fingerprint=giving.offer.fingerprint, endpoint=endpoint, key=key, have=have)
        return directory.take(offer, 0.0)

    directory = Directory((4, 16))
    (one, _), (two, _) = new_pair(), new_pair()
    assert take("tcp://10.0.0.2:7700", one) == take("ipc://@a", "") == take("tcp://10.0.0.2:7700", two) == ""
    assert "Another address needs keys" in take("tcp://10.0.0.2:7700", "")
    assert "others are told to dial it" in take("tcp://0.0.0.0:7700", one)
    assert "endpoint 'tcp://garage.local:7700'" in take("tcp://garage.local:7700", one)  # nor is a name looked up
    named = directory.holders(1.0)
    assert list(zip(named.endpoints, named.keys, strict=True)) == [
        ("tcp://10.0.0.2:7700", one),
        ("ipc://@a", ""),
        ("tcp://10.0.0.2:7700", two),
    ]


def test_an_offer_is_made_again_and_again_until_it_is_not_wanted(tiny_model: Path, tmp_path: Path) -> None:
    class Line:
        dropped = 0
        said: ClassVar[list[Message]] = []
        answers: ClassVar[list[Message]] = []

        def send(self, message: Message) -> bool:
            self.said.append(message)
            return True

        def receive(self, timeout_s: float) -> Message | None:
            return self.answers.pop() if self.answers else None

        def close(self, flush_s: float) -> None: ...

    with open_cache(tiny_model, tmp_path / "cache") as (cache, _):
        line = Line()
        key, _ = new_pair()
        offering = Offering(line, "0" * 16, Place("ipc://@here", key), cache)
        for now in (5.0, 5.1, 6.9, 7.0, 8.0, 9.1):
            offering.tick(now)
        assert [(said.endpoint, said.key) for said in line.said if isinstance(said, OfferPieces)] == [
            ("ipc://@here", key)
        ] * 3
        line.answers.append(PieceFailed(file=0, offset=0, reason="model x is given here"))
        with pytest.raises(ModelError, match="what is given at ipc://@here is not wanted: model x is given here"):
            offering.tick(10.0)


def test_a_share_is_not_given(tiny_model: Path, tmp_path: Path) -> None:
    [half, _] = shares_of(tiny_model, tmp_path / "s", 2)
    with Model.open(half) as opened, pytest.raises(ModelError, match="weights are given from a whole model"):
        Giving(opened)


@pytest.mark.parametrize("name", ["", ".", "..", ".pieces-1", "a/b.gguf", "a\0b", "a\nb", " a", "x" * 201])
def test_names_that_no_file_of_a_cache_may_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="expected printable characters"):
        check_name(name)
    check_name("Qwen3-30B A3B-00001-of-00003.gguf")


def test_whatever_is_read_or_sent_counts_where_a_rate_is_kept(giving: Giving) -> None:
    fingerprint = giving.offer.fingerprint
    digests = AskDigests(
        fingerprint=fingerprint, file=0, offset=np.array([0, 4096], np.int64), bytes=np.array([4096, 800], np.int64)
    )
    offer = OfferPieces(fingerprint=fingerprint, endpoint="ipc://@a", key="", have=np.ones((4, 16), np.uint8))
    assert giving.answer(offer) is None
    asked = [fetch(giving), digests, AskHolders(fingerprint=fingerprint), AskModel(protocol=PROTOCOL)]
    answers = [giving.answer(one) for one in asked]
    counted = [bytes_for(one, answer) for one, answer in zip(asked, answers, strict=True) if answer is not None]
    assert counted == [1000, (4096 + 800) // DIGEST_SHARE, 4 * 16, 0]


def test_nothing_is_read_for_digests_of_which_one_cannot_be_told(
    giving: Giving, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def note(file: int, offset: int, count: int) -> bytes:
        read.append(count)
        return bytes(count)

    monkeypatch.setattr(giving, "_read", note)
    offsets, counts = np.array([0, giving.offer.sizes[0]], np.int64), np.array([4096, 1], np.int64)
    answer = giving.answer(AskDigests(fingerprint=giving.offer.fingerprint, file=0, offset=offsets, bytes=counts))
    assert isinstance(answer, PieceFailed)
    assert "has no bytes" in answer.reason
    assert read == []


def test_a_rate_is_kept_over_any_time_and_silence_is_made_up_for_a_little() -> None:
    rate, now = Rate(1000.0, 0.0), 0.0
    for _ in range(50):
        now += rate.due(now)
        rate.sent(100, now)
    assert now == pytest.approx(4.9)
    now += 100
    assert rate.due(now) == 0
    rate.sent(100, now)
    assert rate.due(now) == pytest.approx(0.1 - BURST_S)
    rate.sent(100, now)
    assert rate.due(now) == pytest.approx(0.2 - BURST_S)
