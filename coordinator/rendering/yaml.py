"""Plain values as YAML: as much of it as manifests need, with every text in quotes that every reader knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def documents(values: Sequence[Any]) -> str:
    """One document for each, in the order given."""
    return "".join("---\n" + "".join(f"{line}\n" for line in _lines(value)) for value in values)


def _lines(value: Any) -> Iterator[str]:
    """Of a mapping or list; what is empty, or neither, is one line."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _entry(f"{key}:", item)
    elif isinstance(value, list) and value:
        for item in value:
            if not _is_block(item):
                yield f"- {_scalar(item)}"
                continue
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, item: Any) -> Iterator[str]:
    if not _is_block(item):
        yield f"{key} {_scalar(item)}"
        return
    yield key
    yield from (f"  {line}" for line in _lines(item))


def _is_block(item: Any) -> bool:
    return isinstance(item, dict | list) and bool(item)


def _scalar(item: Any) -> str:
    """JSON, but for letters that cannot be printed: YAML knows no pairs of surrogates."""
    if not isinstance(item, str):
        return json.dumps(item)
    letters = (letter if letter.isprintable() and letter not in '"\\' else f"\\U{ord(letter):08x}" for letter in item)
    return f'"{"".join(letters)}"'
