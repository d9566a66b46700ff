"""Whether a file can be read past the page cache is tried, not assumed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from expert_worker import direct_probe
from expert_worker.direct_probe import why_not_direct
from protocol.shards import ModelFiles


def test_a_file_system_that_refuses_is_named(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(direct_probe.os, "preadv", refuse)  # after it could be opened
    with ModelFiles.open(tiny_model) as files:
        before = len(os.listdir("/proc/self/fd"))
        assert why_not_direct(files) == f"{tiny_model}: Invalid argument"
        assert len(os.listdir("/proc/self/fd")) <= before  # fewer, if something of another test has ended


def test_one_that_reads_has_nothing_to_say(tiny_model: Path) -> None:
    with ModelFiles.open(tiny_model) as files:
        assert why_not_direct(files) in ("", f"{tiny_model}: Invalid argument")
