"""Whether files can be read past the page cache: some file systems refuse, and not all of them at once."""

from __future__ import annotations

import mmap
import os

from protocol.shards import ModelFiles


def why_not_direct(files: ModelFiles) -> str:
    """Empty if all files of a model can be; else the first that cannot, and why. A page of each is read."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        for each in files.files:
            try:
                same = f"/proc/self/fd/{each.file.descriptor}"  # the path may have another file by now
                descriptor = os.open(same, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
                try:
                    os.preadv(descriptor, [page], 0)
                finally:
                    os.close(descriptor)
            except OSError as error:
                return f"{each.path}: {error.strerror}"
    return ""
