"""Token ids on a command line."""

from __future__ import annotations

import reprlib
from pathlib import Path

from coordinator.cli.prompt_files import read_prompt_file
from protocol.errors import RequestError


def parse_ids(text: str, option: str) -> tuple[int, ...]:
    """Token ids from "1,2,3", or from what the file FILE of "@FILE" holds; RequestError names the first that is none.

    A command line is too short for the ids of a long prompt. OSError if the file cannot be read.
    """
    if text.startswith("@"):
        text = read_prompt_file(Path(text[1:]), option)
    return tuple(_id(item.strip(), option) for item in text.split(","))


def _id(item: str, option: str) -> int:
    if not (item.isascii() and item.isdigit() and len(item) <= 10 and int(item) < 2**31):
        raise RequestError(f"{option}: {reprlib.repr(item)} is not a token id; numbers like 1,2,3 are expected")
    return int(item)
