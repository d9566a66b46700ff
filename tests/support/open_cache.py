"""A cache of a model of this machine: its files made as `fetched_model` makes them, but without a socket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from expert_worker.weights.cache import Cache
from protocol.fingerprint import samples_of
from protocol.model import Model


def hollow_copy(model: Path, folder: Path) -> Path:
    """The model's file with nothing in it but its head and what its fingerprint is made from."""
    folder.mkdir(parents=True, exist_ok=True)
    with Model.open(model) as whole:
        [file] = whole.files.files
        head = min(tensor.offset for tensor in file.tensors.values())
        path = folder / file.path.name
        with path.open("wb") as out:
            os.ftruncate(out.fileno(), file.file.size)
            for offset, count in ((0, head), *samples_of(file.file.size)):
                os.pwrite(out.fileno(), file.file.read(offset, count), offset)
    return path


@contextmanager
def open_cache(model: Path, folder: Path) -> Iterator[tuple[Cache, Model]]:
    """A cache of one process, and the model as that opens it. Several may be open of one folder."""
    path = folder / model.name
    with Model.open(path if path.exists() else hollow_copy(model, folder), filling=True) as filling:
        cache = Cache(filling)
        try:
            yield cache, filling
        finally:
            cache.close()
