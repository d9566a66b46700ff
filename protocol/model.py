"""A model as every process opens it: its files, its numbers, where its experts lie, and its short name."""

from __future__ import annotations

import os
from functools import cached_property
from types import TracebackType
from typing import Self

from protocol.fingerprint import fingerprint
from protocol.geometry import Geometry
from protocol.holes import check_holes, experts_there
from protocol.layout import ExpertLayout
from protocol.shards import ModelFiles


class Model:
    """An open model whose numbers and expert tensors have been checked. Dense tensors: `layout.check_dense`."""

    def __init__(self, files: ModelFiles, *, filling: bool = False) -> None:
        """Takes over `files`. ModelError for whatever would be computed wrongly, or not at all.

        With `filling`, weights are still to be written to the files: whoever has that done knows which are there.
        """
        self.files = files
        self.geometry = Geometry.of(files)
        self.layout = ExpertLayout.of(files, self.geometry)
        self.there = experts_there(files, self.geometry)
        """(layers, experts): 1 for those whose weights are there; None if all are."""
        if not filling:
            check_holes(files)
        for each in files.files:
            each.file.filling = filling

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, filling: bool = False) -> Self:
        """Open the model at `path`: a file, one of several, or a folder (`ModelFiles.open`). ModelError if unsound."""
        files = ModelFiles.open(path)
        try:
            return cls(files, filling=filling)
        except BaseException:
            files.close()
            raise

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that two processes compare. ModelError if the samples cannot be read."""
        pack = self.files.pack
        return fingerprint(self.files, self.layout) if pack is None else pack.fingerprint

    def close(self) -> None:
        """Give up the files; may be called again."""
        self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
