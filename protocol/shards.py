"""The files of a model: one GGUF file, or all that it was split into, found from any of them or from their folder.

A split model's files are called NAME-00001-of-0000N.gguf and so on; each states its place in `split.*` keys. Metadata
stands in the first, tensors in all of them, and a layer's may lie in several.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from protocol.errors import ModelError
from protocol.gguf import GgufFile, TensorInfo
from protocol.gguf_header import shorten
from protocol.gguf_metadata import described
from protocol.pack import PACK_ENDING
from protocol.shard_name import ShardName

MAX_SHARDS = 256
"""Several times the largest models' number; each file takes two descriptors and two watches."""

_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"


class ModelFiles:
    """An open model: metadata of its first file, tensors of all."""

    def __init__(self, files: Sequence[GgufFile]) -> None:
        """Takes over `files`, which belong together and are in order: see `open`."""
        self.files = tuple(files)
        self.path = files[0].path
        """The first file; errors that concern none of the others name it."""
        self.metadata = files[0].metadata
        self.pack = files[0].pack
        """What its file says of itself if that is a pack."""
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: tensor for file in files for name, tensor in file.tensors.items()}
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the model at `path`: its file, any of its files, or the folder with nothing but that model.

        ModelError names the file that is missing, foreign, damaged, or in the wrong place.
        """
        with ExitStack() as opened:
            first = opened.enter_context(GgufFile.open(_in_folder(Path(path))))
            files = [opened.enter_context(first if each == first.path else GgufFile.open(each)) for each in _all(first)]
            if len(files) > 1:
                _check_shards(files)
            opened.pop_all()
            return cls(files)

    def tensor(self, name: str) -> TensorInfo:
        """What the file that has it says of a tensor. ModelError if none has one of that name."""
        if name not in self.tensors:
            whole = "" if len(self.files) == 1 else f" in all {len(self.files)} files"
            raise ModelError(f"{self.path}: tensor {shorten(name)} is missing{whole}")
        return self.tensors[name]

    def check_whole(self, needed: str) -> None:
        """ModelError, which tells what is `needed` instead, if this is a share: not all of the model is there."""
        pack = self.pack
        if pack is not None and pack.share is not None:
            raise ModelError(
                f"{self.path}: {pack.share} of the experts of {shorten(pack.source)}, for a worker; {needed}"
            )

    def changed(self) -> str | None:
        """What became of one of the files since it was opened, in a sentence, or None (`MappedFile.changed`)."""
        changes = ((file.file, file.file.changed()) for file in self.files)
        return next((file.in_words(change) for file, change in changes if change), None)

    def close(self) -> None:
        """Give up the files. Views of them (tensors, metadata arrays) stay valid while they are held."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _in_folder(path: Path) -> Path:
    """The first file of the one model in the folder `path`, or the only pack there; any other path as it is."""
    if not os.path.isdir(path):  # which is False, too, for a path that cannot be
        return path
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(".gguf"))
    except OSError as error:
        raise ModelError(f"folder {os.fspath(path)!r} cannot be read: {error.strerror}") from None
    models: dict[str, Path] = {}
    for file in (path / name for name in [name for name in names if not name.endswith(PACK_ENDING)] or names):
        shard = ShardName.of(file)
        models.setdefault(f"{shard.stem}-*-of-{shard.count:05d}.gguf" if shard else file.name, file)
    if len(models) != 1:
        found = ", ".join(map(shorten, models)) if models else "no file that ends in .gguf"
        raise ModelError(f"folder {os.fspath(path)!r} has {found}; expected the files of one model, or name a file")
    return next(iter(models.values()))


def _all(opened: GgufFile) -> list[Path]:
    """The paths of the model that `opened` belongs to. ModelError if its name and its keys do not agree on that."""
    path, shard = opened.path, ShardName.of(opened.path)
    count = opened.metadata.integer(_COUNT, 0)
    if not 0 <= count <= MAX_SHARDS:
        raise ModelError(f"{path}: {_COUNT!r} is {count}, expected at most {MAX_SHARDS}")
    if count <= 1 and (shard is None or shard.count == 1):
        return [path]
    if shard is None:
        raise ModelError(
            f"{path}: one of {count} files of a split model, but the others cannot be found from its name: "
            f"expected NAME-0000X-of-{count:05d}.gguf"
        )
    if shard.count != count:
        found = f"{_COUNT!r} is {count}" if count else f"it has no {_COUNT!r}"
        raise ModelError(f"{path}: its name says {shard.count} files, but {found}")
    if not 1 <= shard.number <= count:
        raise ModelError(f"{path}: its name says file {shard.number} of {count}, expected 1 to {count}")
    if missing := [each.name for each in shard.all() if not each.exists()]:
        named = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise ModelError(f"{path}: {len(missing)} of the model's {count} files missing in its folder: {named}")
    return shard.all()


def _check_shards(files: Sequence[GgufFile]) -> None:
    """ModelError for the first file that does not belong to the first one, or not where it is."""
    first = files[0]
    expected = first.metadata.integer(_TENSORS)
    seen: dict[str, GgufFile] = {}
    for number, file in enumerate(files):
        for key, wanted in ((_COUNT, len(files)), (_NUMBER, number), (_TENSORS, expected)):
            if (found := file.metadata.integer(key, None)) != wanted:
                stated = "missing" if found is None else found
                raise ModelError(f"{file.path}: {key!r} is {stated}, expected {wanted}: is it a file of this model?")
        if file.pack is not None:
            raise ModelError(f"{file.path}: a pack among the files of a split model; a pack is one file")
        _check_same_metadata(first, file)
        for name in file.tensors:
            if name in seen:
                raise ModelError(f"{file.path}: tensor {shorten(name)} is in {seen[name].path.name!r} too")
            seen[name] = file
    if len(seen) != expected:
        raise ModelError(f"{first.path}: {len(seen)} tensors in all {len(files)} files, but {_TENSORS!r} is {expected}")


def _check_same_metadata(first: GgufFile, file: GgufFile) -> None:
    """Files behind the first need no metadata, but what they have must not be another model's."""
    for key, found in file.metadata.items():
        wanted = first.metadata.get(key)
        scalars = isinstance(found, (bool, int, float, str)) and isinstance(wanted, (bool, int, float, str))
        if scalars and found != wanted and not key.startswith("split.") and key != "general.alignment":
            raise ModelError(
                f"{file.path}: {shorten(key)} is {described(found)}, but {described(wanted)} in "
                f"{first.path.name!r}: is it a file of this model?"
            )
