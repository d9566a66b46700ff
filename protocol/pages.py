"""Which processes compute from the same pages of memory, so that a copy for one is a copy for all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from protocol.model import Model

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Differs between machines, and between lives of one; the same in all containers of one."""


def pages_of(model: Model) -> str:
    """16 hex digits of this machine and the model's open files; empty where machines cannot be told apart."""
    return pages_of_files(file.file.descriptor for file in model.files.files)


def pages_of_files(descriptors: Iterable[int]) -> str:
    """16 hex digits of this machine and these open files, in any order; empty where machines cannot be told apart."""
    machine = boot_id()
    if not machine:
        return ""
    files = sorted((stat.st_dev, stat.st_ino) for stat in map(os.fstat, descriptors))
    return blake2b(f"{machine} {files}".encode(), digest_size=8).hexdigest()


def boot_id() -> str:
    """Of this machine's life; empty if the kernel does not tell."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
