"""Mapped files that others may shrink or rewrite while they are used (rule R13)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import native
from protocol.errors import ChangedExpertError
from protocol.mapped import MappedFile


class WatchedFiles:
    """Mapped files whose lost pages read as zeros, and `problem` tells."""

    def __init__(self, files: Iterable[MappedFile]) -> None:
        """The files stay open for as long as they are watched."""
        self._files = {file.path.name: (file, _watch(file)) for file in files}

    def problem(self, name: str | None = None) -> str | None:
        """What became of the file `name` (of any, if None) since it was opened, in a sentence; None if nothing did."""
        for file, watch in self._files.values() if name is None else (self._files[name],):
            change = file.changed()
            if change is None and (offset := watch.fault()) >= 0:
                change = f"its bytes at offset {offset} cannot be read"
            if change is not None:
                return file.in_words(change)
        return None

    def check(self, names: Iterable[str], layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """ChangedExpertError, which names the first of the layer's `experts`, if one of these files has changed.

        What was read from a file that is not the one we opened is worth nothing, however finite it looks.
        """
        for name in names:
            if not self._files[name][1].intact() and (problem := self.problem(name)):
                raise ChangedExpertError(layer, int(experts[0]) if len(experts) else -1, problem)

    def close(self) -> None:
        """No longer survive changes of the files. May be called again."""
        for _, watch in self._files.values():
            watch.close()


def _watch(file: MappedFile) -> native.Watch:
    return native.Watch(file.data, file.descriptor, os.fsencode(file.path), file.modified_ns)
