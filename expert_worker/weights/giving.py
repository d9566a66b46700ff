"""What a weights process answers: pure but for reading the model's files."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from protocol.errors import ConfigError, ModelError
from protocol.messages import (
    MAX_REASON,
    PROTOCOL,
    AskModel,
    FetchPiece,
    Message,
    ModelOffer,
    PieceBytes,
    PieceFailed,
    Refused,
)
from protocol.model import Model


class Giving:
    """Gives a model's files away, in pieces."""

    def __init__(self, model: Model) -> None:
        """`model` stays open. ConfigError if it is one that cannot be given."""
        model.files.check_whole("weights are given from a whole model, or a whole pack of it")
        self._model = model
        self._files = [file.file for file in model.files.files]
        for file in self._files:
            check_name(file.path.name)
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
        match message:
            case AskModel() if message.protocol != PROTOCOL:
                return Refused(mismatches=[["protocol", str(message.protocol), str(PROTOCOL)]])
            case AskModel():
                change = self._model.files.changed()
                return self.offer if change is None else PieceFailed(file=0, offset=0, reason=change[:MAX_REASON])
            case FetchPiece():
                return self._piece(message)
        return None

    def _piece(self, asked: FetchPiece) -> PieceBytes | PieceFailed:
        try:
            data = self._read(asked)
        except ModelError as error:
            return PieceFailed(file=asked.file, offset=asked.offset, reason=str(error)[:MAX_REASON])
        return PieceBytes(
            file=asked.file,
            offset=asked.offset,
            sha256=sha256(data).hexdigest(),
            data=np.frombuffer(data, np.uint8),
        )

    def _read(self, asked: FetchPiece) -> bytes:
        """ModelError if it cannot be, or is not what it was when the model was opened."""
        if asked.fingerprint != self.offer.fingerprint:
            raise ModelError(f"model {asked.fingerprint} is asked for, and {self.offer.fingerprint} is given here")
        if asked.file >= len(self._files) or asked.offset + asked.bytes > self._files[asked.file].size:
            raise ModelError(f"file {asked.file} has no bytes {asked.offset} to {asked.offset + asked.bytes}")
        data = self._files[asked.file].read(asked.offset, asked.bytes)
        if change := self._model.files.changed():
            raise ModelError(change)
        return data


def check_name(name: str) -> None:
    """ConfigError unless a file in a cache may be called that: names come from outside, and some are our own."""
    if name != name.strip() or not name.isprintable() or "/" in name or name[:1] in ("", ".") or len(name) > 200:
        raise ConfigError(f"a model's file is called {name[:80]!r}, expected printable characters, no leading dot")
