from __future__ import annotations

import errno
import os

import pytest

from coordinator.cli import output


def test_text_arrives_whole_however_little_is_taken_at_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write = os.write
    monkeypatch.setattr(output.os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    output.put("Ωmega and more\n")
    assert capfd.readouterr().out == "Ωmega and more\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EBADF, errno.EIO, errno.EPIPE])
def test_what_goes_wrong_names_stdout(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(descriptor: int, data: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(output.os, "write", refuse)
    with pytest.raises(OSError, match="'stdout'") as caught:
        output.put("x")
    assert (caught.value.errno, caught.value.filename) == (number, "stdout")
