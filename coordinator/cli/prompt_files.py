"""Files that a prompt comes from, read as far as a prompt can go."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from protocol.errors import RequestError

MAX_PROMPT_BYTES = 64 << 20
"""Longer than any context; what has no end need not be read to it."""


def read_prompt_file(path: Path, option: str) -> str:
    """The text of a file, or of stdin if its name is "-". RequestError if it is not UTF-8 or too long."""
    if str(path) == "-" and sys.stdin is None:
        raise RequestError(f"{option}: stdin is closed, so the prompt cannot come from it")
    with click.open_file(str(path), "rb") as file:
        raw: bytes = file.read(MAX_PROMPT_BYTES + 1)
    if len(raw) > MAX_PROMPT_BYTES:
        raise RequestError(f"{path}: more than {MAX_PROMPT_BYTES} bytes, which no model's context can hold")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: byte {error.start} is not UTF-8 text") from None
