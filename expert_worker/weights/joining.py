"""A worker without a model's files: asks which model it is, and makes files of which nothing but the heads is there."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from expert_worker.weights.asking import Asking, Dial, Patience
from expert_worker.weights.cache import SETTLED_NS, Cache
from expert_worker.weights.fetching import Fetching
from expert_worker.weights.giving import check_name
from expert_worker.weights.grid import Piece
from expert_worker.weights.place import Place
from protocol.bulk import BULK_FRAME_BYTES
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError, ModelError
from protocol.fingerprint import samples_of
from protocol.gguf_header import HEADER_LIMIT
from protocol.holder.serve import Connection
from protocol.keys import DialKeys
from protocol.messages import MAX_PIECE_BYTES, PROTOCOL, AskModel, ModelOffer, PieceFailed, Refused
from protocol.model import Model
from protocol.neighbours import bulk_endpoint
from protocol.pages import pages_of
from protocol.wire import Dialled
from protocol.write_all import write_all

log = logging.getLogger(__name__)

LOOK_S = 0.1
ASK_AGAIN_S = 2.0
"""An AskModel that was not answered is said again after this long."""
DAMAGED_AT_MOST = 3


def fetched_model(control: str, cache: Path, within_s: float, keys: DialKeys | None = None) -> Model:
    """The model of the coordinator at `control`, its files in a folder of `cache`, with what is there of them.

    ConfigError or ModelError if no weights are given there `within_s`, or they are of no use here.
    """
    place = where_given(control, keys)
    dial = dialling(keys, patient=False)
    offer = _offer(place, within_s, dial)
    folder = cache / offer.fingerprint
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder, within_s):
            _make_files(folder, offer, Asking(place, offer.fingerprint, dial), within_s)
            return _opened(folder, offer, place)
    except OSError as error:
        raise ConfigError(f"cache {folder} cannot be used: {error.strerror or error}") from None


def supply_of(model: Model, control: str, keys: DialKeys | None = None) -> Fetching:
    """What brings the weights of a model that was opened by `fetched_model`. ConfigError if its folder is of no use.

    From then on the model says that those experts are there for which the disk has room.
    """
    cache = opened_cache(model)
    model.there = cache.fitting(int(pages_of(model) or "0", 16))  # the same for all workers of this folder
    if model.there is not None:
        log.info("%s: the disk has room for %d of all experts", cache.folder, int(model.there.sum()))
    return Fetching(cache, where_given(control, keys), model.fingerprint, dialling(keys))


def opened_cache(model: Model) -> Cache:
    """The folder of a model that was opened by `fetched_model`. ConfigError if it is of no use."""
    try:
        cache = Cache(model)
        if lost := cache.forget_holes():
            log.warning("%s: %d pieces are marked and not there; they are fetched again", cache.folder, lost)
    except OSError as error:
        raise ConfigError(f"cache {model.files.path.parent} cannot be used: {error.strerror or error}") from None
    return cache


def where_given(control: str, keys: DialKeys | None) -> Place:
    """Where weights are given beside the coordinator at `control`. ConfigError if that may not be dialled."""
    endpoint = bulk_endpoint(check_endpoint(control, dial=True, keyed=keys is not None))
    return Place(endpoint, "" if keys is None else keys.coordinator)


def dialling(keys: DialKeys | None, *, patient: bool = True) -> Dial:
    """Dials whoever has a key with the secret of `keys`, and who has none, on this machine, without.

    Unless `patient`, somebody there who breaks off every greeting is an error.
    """

    def dial(to: Place) -> Connection:
        if to.key and keys is None:
            raise ConfigError("it has a key, and there is none here to be let in by: --keys FILE is expected")
        own = replace(keys, coordinator=to.key) if to.key and keys is not None else None
        return Dialled(to.endpoint, keys=own, patient=patient, max_frame_bytes=BULK_FRAME_BYTES)

    return dial


def _offer(place: Place, within_s: float, dial: Dial) -> ModelOffer:
    """ConfigError if there is none in time, or it is of no use here."""
    line = dial(place)
    patience, asked_at = Patience(time.monotonic()), -ASK_AGAIN_S
    try:
        while (waited_s := patience.look(time.monotonic())) < within_s:
            if waited_s - asked_at >= ASK_AGAIN_S:
                asked_at = waited_s
                line.send(AskModel(protocol=PROTOCOL))
            match line.receive(LOOK_S):
                case ModelOffer() as offer:
                    _check(offer)
                    return offer
                case Refused() as refused:
                    raise ConfigError(f"the weights process at {place} refused: {refused.in_words()}")
                case PieceFailed(reason=reason):
                    raise ConfigError(f"no weights are to be had from {place}: {reason}")
    finally:
        line.close(0)
    raise ConfigError(
        f"nobody gives weights at {place}, within {within_s:g} s: does the cluster file there say bulk = true, in "
        "[coordinator]? With the model's file here, take --model instead"
    )


def _check(offer: ModelOffer) -> None:
    """ConfigError for what would not be safe, or of no use."""
    if not re.fullmatch("[0-9a-f]{16}", offer.fingerprint):
        raise ConfigError(f"model {offer.fingerprint[:80]!r} is offered, expected 16 hex digits")
    for name in offer.names:
        check_name(name)
    if len(set(offer.names)) != len(offer.names):
        raise ConfigError("two files of the model that is offered have the same name")
    if max(offer.heads) > 2 * HEADER_LIMIT:
        raise ConfigError(f"a file's head of {max(offer.heads)} bytes is offered, {2 * HEADER_LIMIT} at most expected")


def _opened(folder: Path, offer: ModelOffer, place: Place) -> Model:
    """ModelError if the files are not what was offered."""
    for name in offer.names:  # another process may be writing them
        os.utime(folder / name, ns=(SETTLED_NS, SETTLED_NS))
    model = Model.open(folder / offer.names[0], filling=True)
    if model.fingerprint != offer.fingerprint:
        model.close()
        raise ModelError(
            f"{folder}: the files' heads make model {model.fingerprint}, and {offer.fingerprint} was offered by "
            f"{place}; remove the folder to fetch them again"
        )
    return model


@contextmanager
def _alone(folder: Path, within_s: float) -> Iterator[None]:
    """No other process makes files there meanwhile. ConfigError if one does for so long."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        patience = Patience(time.monotonic())
        while not _locked(lock):
            if patience.look(time.monotonic()) >= within_s:
                raise ConfigError(f"another process has made files in {folder} for {within_s:g} s: is it stopped?")
            time.sleep(LOOK_S)
        yield
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_files(folder: Path, offer: ModelOffer, asking: Asking, within_s: float) -> None:
    """Those that are missing: as large as they will be, with their heads and what the fingerprint looks at."""
    wanted = [number for number, name in enumerate(offer.names) if not (folder / name).exists()]
    try:
        for number in wanted:
            path = folder / offer.names[number]
            _make_file(path, number, offer, asking, within_s)
            log.info("made %s, of which nothing but its head is there yet", path)
    finally:
        asking.close()


def _make_file(path: Path, number: int, offer: ModelOffer, asking: Asking, within_s: float) -> None:
    """It takes its name when it is complete as it is to be now."""
    new = path.with_name(f".{path.name}.new")
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        os.ftruncate(file, offer.sizes[number])
        for piece in _head(number, offer):
            write_all(file, _fetch(piece, asking, within_s), piece.offset)
        os.fsync(file)
        new.rename(path)
    finally:
        os.close(file)


def _head(number: int, offer: ModelOffer) -> Iterator[Piece]:
    size = offer.sizes[number]
    for start, count in ((0, offer.heads[number]), *samples_of(size)):
        for at in range(start, start + count, MAX_PIECE_BYTES):
            yield Piece(file=number, offset=at, bytes=min(MAX_PIECE_BYTES, start + count - at))


def _fetch(piece: Piece, asking: Asking, within_s: float) -> bytes:
    """One after the other: there are few. ConfigError if it does not come."""
    patience, asked_at, damaged = Patience(time.monotonic()), 0.0, 0
    asking.ask(piece)
    while (waited_s := patience.look(time.monotonic())) < within_s and damaged < DAMAGED_AT_MOST:
        came = asking.hear(LOOK_S)
        if came is None:
            if waited_s - asked_at >= ASK_AGAIN_S:
                asked_at = waited_s
                asking.ask_again()
            continue
        if came.refused:
            raise ConfigError(f"no weights are to be had from {asking.place}: {came.refused}")
        if came.data is not None:
            return came.data.tobytes()
        damaged += 1
        log.warning(
            "%d bytes at %d of file %d came damaged from %s", piece.bytes, piece.offset, piece.file, asking.place
        )
        asking.ask(piece)
    why = f"{damaged} times damaged" if damaged else f"not within {within_s:g} s"
    raise ConfigError(f"{piece.bytes} bytes at {piece.offset} of file {piece.file} came {why} from {asking.place}")
