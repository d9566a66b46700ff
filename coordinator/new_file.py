"""A file that appears when it is complete, in place of what was there, or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from protocol.errors import ConfigError


@contextmanager
def new_file(path: str, *, keep: Sequence[Path], option: str, replace: bool = True) -> Iterator[BinaryIO]:
    """Write to what becomes the file `path` at the end, or nothing if the block fails or the process is killed.

    Links are followed. ConfigError, naming the command line's `option`, if something other than a file is there, if
    that is one of `keep`, if it is not to be replaced, or if no file can be made there.
    """
    target = Path(os.path.realpath(path))
    draft = target.parent / f".expertmesh-{os.getpid()}"
    try:
        _check(path, keep, replace)
        with _open(draft) as file:
            yield file
            file.flush()
            _name(file, draft)
            draft.replace(target)
    except OSError as error:
        raise ConfigError(f"{option}: {path or 'an empty path'} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # where nothing could be made, nothing is left
            draft.unlink()


def _check(path: str, keep: Sequence[Path], replace: bool) -> None:
    """OSError unless a file at `path` may come, or go."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        if os.path.basename(path):
            return
        raise
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "what is there is not a file")
    if any(os.path.samestat(found, each.stat()) for each in keep):
        raise OSError(0, "it is the model")
    if not replace:
        raise OSError(0, "it is there already, and replaced with --force alone")


def _open(draft: Path) -> BinaryIO:
    """A file without a name, of which nothing is left when this process ends; `draft` where there are none such."""
    try:
        return open(os.open(draft.parent, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb")
    except OSError:
        draft.unlink(missing_ok=True)  # left by a process of this number that was killed
        return draft.open("xb")


def _name(file: BinaryIO, draft: Path) -> None:
    """Give a file without a name this one."""
    if os.fstat(file.fileno()).st_nlink == 0:
        draft.unlink(missing_ok=True)  # left by a process of this number that was killed just here
        os.link(f"/proc/self/fd/{file.fileno()}", draft, src_dir_fd=file.fileno())  # which makes it follow the link
