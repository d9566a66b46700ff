"""The text of the CUDA kernels as one compiler takes it: each unit is one .cu file with its headers put in place."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
HEADERS = (FOLDER, FOLDER.parent / "src")

UNITS = ("rows", "experts", "elementwise", "attention", "router")
"""Compiled apart from each other; no two have a kernel of the same name."""

OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""For the compiler, beside the architecture. The order and rounding of fp32 operations is the contract."""

TYPES = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
"""
"""What the standard headers would give: the run-time compiler has none."""

_INCLUDE = re.compile(r'^#include (?:"([^"]+)"|<[^>]+>)\n', re.MULTILINE)


def unit(name: str) -> str:
    """The whole text of one of UNITS, without any #include left in it."""
    return TYPES + _inlined((FOLDER / f"{name}.cu").read_text(), set())


def _inlined(text: str, seen: set[str]) -> str:
    def header(found: re.Match[str]) -> str:
        name = found[1]
        if name is None or name in seen:
            return ""
        seen.add(name)
        path = next(folder / name for folder in HEADERS if (folder / name).exists())
        return _inlined(path.read_text().replace("#pragma once\n", ""), seen)

    return _INCLUDE.sub(header, text)
