"""What `expertmesh model inspect` prints: for people, or as one JSON object."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordinator.cli.wording import harmless
from coordinator.gpus import Gpu
from coordinator.inspection import Inspection
from protocol.host_memory import HostMemory
from protocol.rotary import RopeScaling, Rotary
from protocol.shards import ModelFiles
from protocol.wording import counted, size

WIDTH = 110
KV_BYTES = {"f16": 2, "f32": 4}
WORKERS = (1, 2, 4, 8)


def as_text(files: ModelFiles, found: Inspection, memory: HostMemory, gpus: Sequence[Gpu]) -> str:
    """A page of plain text."""
    page = io.StringIO()
    console = Console(file=page, width=WIDTH, highlight=False, color_system=None)
    for label, text in _facts(files, found):
        console.print(Text(f"{label:<11}{harmless(text)}"), soft_wrap=True)
    console.print()
    console.print(_parts(found))
    for label, text in _places(found, memory, gpus):
        console.print(Text(f"{label:<11}{harmless(text)}"), soft_wrap=True)
    console.print()
    if not found.problems:
        is_share = found.pack is not None and found.pack.share is not None
        console.print("A worker can hold it; no coordinator can run it." if is_share else "It can be run.")
    else:
        console.print("It cannot be run:")
        for problem in _collapsed(found.problems):
            console.print(Text(f"- {harmless(problem)}"), soft_wrap=True)
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def as_object(files: ModelFiles, found: Inspection, memory: HostMemory, gpus: Sequence[Gpu]) -> str:
    """One line of JSON; sizes in bytes."""
    parts = [{**asdict(part), "type": part.type.name, "runnable": part.runnable} for part in found.parts]
    whole: dict[str, Any] = {
        "files": [{"path": str(file.path), "bytes": file.file.size} for file in files.files],
        "architecture": found.architecture,
        "name": found.name,
        "geometry": asdict(found.geometry) if found.geometry else None,
        "tokenizer": found.tokenizer,
        "pack": asdict(found.pack) if found.pack else None,
        "parts": parts,
        "dense_bytes": found.dense_bytes,
        "expert_bytes": found.expert_bytes,
        "kv_bytes_a_position": {kind: found.position_bytes(size) for kind, size in KV_BYTES.items()},
        "memory": {"total": memory.total, "available": memory.available, "unknown": memory.unknown},
        "gpus": [asdict(gpu) for gpu in gpus],
        "problems": list(found.problems),
    }
    return json.dumps(whole) + "\n"


def _facts(files: ModelFiles, found: Inspection) -> Iterator[tuple[str, str]]:
    total = sum(file.file.size for file in files.files)
    several = f" and {counted(len(files.files) - 1, 'more file')}" if len(files.files) > 1 else ""
    yield "model", f"{files.path}{several}, {size(total)}"
    if (made := found.pack) is not None:
        yield "pack", f"of {made.source}, fingerprint {made.fingerprint}"
    if made is not None and made.share is not None:
        experts = counted(made.experts or 0, "expert")
        yield (
            "share",
            f"{made.share} of {made.shares}, for one worker: {experts}, {size(made.bytes)}, and no dense weights",
        )
    if found.name:
        yield "name", found.name
    yield "kind", found.architecture or "it does not say"
    if (of := found.geometry) is not None:
        dense = f", the first {of.dense_layers} dense" if of.dense_layers else ""
        yield (
            "layers",
            f"{of.layers}{dense}, {of.width} wide; "
            f"{of.heads} heads of {of.head_dim}, {of.kv_heads} for keys and values; "
            f"made for {of.context} positions{_scaled(of.rotary)}",
        )
        yield (
            "experts",
            f"{of.experts} a layer, {of.experts_used} used for each token, {of.expert_width} wide, "
            f"{size(found.expert_bytes // (len(of.expert_layers) * of.experts))} each",
        )
    yield "tokenizer", found.tokenizer


def _scaled(rotary: Rotary) -> str:
    return f" ({rotary.scaling} scaling by {rotary.factor:g})" if rotary.scaling != RopeScaling.NONE else ""


def _parts(found: Inspection) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("part", "type"):
        table.add_column(heading)
    for heading in ("tensors", "size", "read for a token"):
        table.add_column(heading, justify="right")
    for part in found.parts:
        kind = f"{part.type.name}{', packed' if part.packed else ''}{'' if part.runnable else ' (not supported)'}"
        table.add_row(part.name, kind, str(part.tensors), size(part.bytes), _or_unknown(part.token_bytes))
    for name, of_experts in (("coordinator holds", False), ("workers hold", True)):
        parts = [part for part in found.parts if part.of_experts == of_experts]
        read = None if found.geometry is None else sum(part.token_bytes or 0 for part in parts)
        table.add_row(
            name,
            "",
            str(sum(part.tensors for part in parts)),
            size(sum(part.bytes for part in parts)),
            _or_unknown(read),
        )
    return table


def _collapsed(problems: Sequence[str]) -> Iterator[str]:
    """Problems that differ in the number of the layer alone, told once."""
    alike: dict[str, list[str]] = {}
    for problem in problems:
        alike.setdefault(re.sub(r"blk\.\d+\.", "", problem), []).append(problem)
    for first, *others in alike.values():
        yield first + (f"; the same in {counted(len(others), 'other layer')}" if others else "")


def _or_unknown(count: int | None) -> str:
    return "?" if count is None else size(count)


def _places(found: Inspection, memory: HostMemory, gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    """What would fit where."""
    yield "", ""
    bound = f" (limit of {memory.bound_by})" if memory.bound_by else ""
    yield (
        "memory",
        f"not known how much is available: {memory.unknown}"
        if memory.unknown
        else f"{size(memory.available)} available of {size(memory.total)}{bound}: {_fits(found, memory.available)}",
    )
    for number, gpu in enumerate(gpus):
        yield f"gpu {number}", f"{gpu.name}, {size(gpu.free)} free of {size(gpu.total)}: {_fits(found, gpu.free)}"
    if not gpus:
        yield "gpu", "none found"
    if (of := found.geometry) is not None:
        kv = {kind: found.position_bytes(bytes) or 0 for kind, bytes in KV_BYTES.items()}
        yield (
            "kv cache",
            f"{size(kv['f16'])} a position in f16, {size(kv['f32'])} in f32; "
            f"{size(kv['f16'] * of.context)} for all {of.context} in f16",
        )
        shares = ", ".join(f"{size(found.expert_bytes // count)} with {count}" for count in WORKERS)
        yield "workers", f"each holds {shares}"


def _fits(found: Inspection, room: int) -> str:
    """What of a model has room."""
    whole = found.dense_bytes + found.expert_bytes
    if whole <= room:
        return f"all of it fits ({size(whole)})"
    if found.dense_bytes > room:
        return f"not even what the coordinator holds fits ({size(found.dense_bytes)})"
    share = (room - found.dense_bytes) / found.expert_bytes
    return f"what the coordinator holds fits, and {share:.0%} of the experts"
