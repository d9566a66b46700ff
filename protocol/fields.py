"""What the fields of a message may hold, derived once per class from its annotations."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from protocol.errors import ProtocolError
from protocol.messages import Any_, Message, Spec

MAX_TEXT_BYTES = 64 << 10
"""Of any text, in UTF-8."""
MAX_ITEMS = 4096
"""Items of a list, keys of a map."""
MAX_DEPTH = 6
"""Lists and maps within each other, in a field that is a free map."""

Check = Callable[[Any], bool]
"""Tells whether a value fits; never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayField:
    """One array field as it travels."""

    name: str
    code: str
    """The dtype in a header: i1, u1, i4, i8 or f4."""
    dtype: np.dtype[Any]
    dimensions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One message class: what to write into a header, and what to expect of one."""

    kind: str
    cls: type[Message]
    plain: Mapping[str, Check]
    """Fields that travel in the header, and what each may hold."""
    arrays: tuple[ArrayField, ...]

    def check(self, name: str, value: object) -> None:
        """ProtocolError unless a plain field may hold this."""
        if not self.plain[name](value):
            raise ProtocolError(f"{self.kind}.{name} cannot be {reprlib.repr(value)}")


def _is_integer(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_float(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _is_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    return 4 * len(value) <= MAX_TEXT_BYTES or len(value.encode("utf-8", "replace")) <= MAX_TEXT_BYTES


def _is_list(item: Check) -> Check:
    return lambda value: type(value) is list and len(value) <= MAX_ITEMS and all(map(item, value))


def _is_map(item: Check) -> Check:
    return lambda value: (
        type(value) is dict and len(value) <= MAX_ITEMS and all(map(_is_text, value)) and all(map(item, value.values()))
    )


def _is_anything(depth: int) -> Check:
    """Plain data with at most `depth` lists and maps within each other."""

    def is_anything(value: Any) -> bool:
        if value is None or type(value) in (bool, float) or _is_integer(value) or _is_text(value):
            return True
        return depth > 0 and (are_items(value) or is_map(value))

    below = _is_anything(depth - 1) if depth > 0 else is_anything
    are_items, is_map = _is_list(below), _is_map(below)
    return is_anything


def _check_for(annotation: Any) -> Check:
    """TypeError for an annotation that no message field may have."""
    scalars: dict[Any, Check] = {int: _is_integer, float: _is_float, str: _is_text, Any: _is_anything(MAX_DEPTH - 1)}
    if annotation in scalars:
        return scalars[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) is list:
        return _is_list(_check_for(arguments[0]))
    if get_origin(annotation) is dict and arguments[0] is str:
        return _is_map(_check_for(arguments[1]))
    raise TypeError(f"no message field can be a {annotation}")


def _table(cls: type[Message]) -> Table:
    plain: dict[str, Check] = {}
    arrays: list[ArrayField] = []
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        annotation = hints[field.name]
        spec = next((one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Spec)), None)
        if spec is None:
            plain[field.name] = _check_for(annotation)
        else:
            dtype = np.dtype("<" + spec.dtype)
            arrays.append(ArrayField(name=field.name, code=spec.dtype, dtype=dtype, dimensions=spec.dimensions))
    return Table(kind=cls.__name__, cls=cls, plain=plain, arrays=tuple(arrays))


TABLES: Mapping[str, Table] = {cls.__name__: _table(cls) for cls in get_args(Any_)}
"""Every message class by its kind."""
