"""What a weights process answers: pure but for reading the model's files."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256

import numpy as np

from expert_worker.weights.cache import Cache
from expert_worker.weights.directory import Directory
from protocol.errors import ConfigError, ModelError
from protocol.messages import (
    MAX_REASON,
    PROTOCOL,
    AskDigests,
    AskHolders,
    AskModel,
    Digests,
    FetchPiece,
    Holders,
    Message,
    ModelOffer,
    OfferPieces,
    PieceBytes,
    PieceFailed,
    Refused,
)
from protocol.model import Model

DIGEST_SHARE = 8
"""Of as many bytes as one that is sent, a digest takes so much less: they are read, and do not travel."""


class Giving:
    """Gives a model's files away, in pieces: all of them, or what is there of them in a cache."""

    def __init__(self, model: Model, cache: Cache | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`model` stays open, and so does its `cache`. ConfigError or ModelError if it is one that cannot be given."""
        model.files.check_whole("weights are given from a whole model, or a whole pack of it")
        self._model = model
        self._files = [file.file for file in model.files.files]
        for file in self._files:
            check_name(file.path.name)
        self._cache = cache
        self._clock = clock
        self._directory = Directory((model.geometry.layers, model.geometry.experts))
        self.offer = ModelOffer(
            fingerprint=model.fingerprint,
            names=[file.path.name for file in self._files],
            sizes=[file.size for file in self._files],
            heads=[
                min((tensor.offset for tensor in file.tensors.values()), default=file.file.size)
                for file in model.files.files
            ],
        )

    def answer(self, message: Message) -> Message | None:
        """To whoever asked; None for what is none of our business."""
        try:
            match message:
                case FetchPiece():
                    return self._piece(message)
                case AskModel() | AskDigests() | AskHolders() | OfferPieces() if self._cache is None:
                    return self._of_the_model(message)
        except ModelError as error:
            at = message.offset if isinstance(message, FetchPiece) else 0
            return PieceFailed(file=getattr(message, "file", 0), offset=at, reason=str(error)[:MAX_REASON])
        return None

    def _of_the_model(self, message: AskModel | AskDigests | AskHolders | OfferPieces) -> Message | None:
        """What only the process beside the coordinator knows."""
        match message:
            case AskModel():
                if message.protocol != PROTOCOL:
                    return Refused(mismatches=[["protocol", str(message.protocol), str(PROTOCOL)]])
                self._check_unchanged()
                return self.offer
            case AskDigests():
                return self._digests(message)
            case AskHolders():
                self._check_model(message.fingerprint)
                return self._directory.holders(self._clock())
            case OfferPieces():
                self._check_model(message.fingerprint)
                why_not = self._directory.take(message, self._clock())
                return PieceFailed(file=0, offset=0, reason=why_not[:MAX_REASON]) if why_not else None

    def _piece(self, asked: FetchPiece) -> PieceBytes:
        self._check_model(asked.fingerprint)
        if self._cache is not None and not self._cache.has_piece(asked.file, asked.offset, asked.bytes):
            raise ModelError("it is not in this cache")
        data = self._read(asked.file, asked.offset, asked.bytes)
        self._check_unchanged()
        digest = sha256(data).hexdigest()
        return PieceBytes(file=asked.file, offset=asked.offset, sha256=digest, data=np.frombuffer(data, np.uint8))

    def _digests(self, asked: AskDigests) -> Digests:
        self._check_model(asked.fingerprint)
        pieces = list(zip(asked.offset.tolist(), asked.bytes.tolist(), strict=True))
        for offset, count in pieces:  # before any is read: a failure counts nothing where a rate is kept
            self._check_there(asked.file, offset, count)
        found = b"".join(sha256(self._read(asked.file, offset, count)).digest() for offset, count in pieces)
        self._check_unchanged()
        return Digests(file=asked.file, offset=asked.offset, sha256=np.frombuffer(found, np.uint8).reshape(-1, 32))

    def _read(self, file: int, offset: int, count: int) -> bytes:
        self._check_there(file, offset, count)
        return self._files[file].read(offset, count)

    def _check_there(self, file: int, offset: int, count: int) -> None:
        if file >= len(self._files) or offset + count > self._files[file].size:
            raise ModelError(f"file {file} has no bytes {offset} to {offset + count}")

    def _check_model(self, fingerprint: str) -> None:
        if fingerprint != self.offer.fingerprint:
            raise ModelError(f"model {fingerprint} is asked for, and {self.offer.fingerprint} is given here")

    def _check_unchanged(self) -> None:
        """What was read before is worth nothing if this fails."""
        if change := self._model.files.changed():
            raise ModelError(change)


def bytes_for(asked: Message, answer: Message) -> int:
    """What an answer counts for where so many bytes a second may be given."""
    match answer:
        case PieceBytes():
            return len(answer.data)
        case Holders():
            return answer.have.nbytes
        case Digests() if isinstance(asked, AskDigests):
            return int(asked.bytes.sum()) // DIGEST_SHARE
    return 0


def check_name(name: str) -> None:
    """ConfigError unless a file in a cache may be called that: names come from outside, and some are our own."""
    if name != name.strip() or not name.isprintable() or "/" in name or name[:1] in ("", ".") or len(name) > 200:
        raise ConfigError(f"a model's file is called {name[:80]!r}, expected printable characters, no leading dot")
