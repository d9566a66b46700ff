"""Splits a model file as its usual tools do: NAME-00001-of-0000N.gguf, metadata and `split.*` keys, tensors in turn.

python tests/support/split_models.py MODEL.gguf FOLDER FILES
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gguf_bytes import I32, U16, Raw, string, value

from protocol.gguf import GgufFile, TensorInfo
from protocol.gguf_header import parse_header

_ALIGNMENT = 32


def split_model(
    model: Path,
    folder: Path,
    files: int,
    *,
    empty_first: bool = False,
    keys: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[Path]:
    """Write `files` files with the tensors of `model` into `folder` (which is made); returns their paths in order.

    With `empty_first` the first has metadata only. `keys` replaces, adds or (None) takes out keys of a file by its
    number from 1, whatever sense that makes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with GgufFile.open(model) as whole:
        tensors = list(whole.tensors.values())
        holders = files - 1 if empty_first else files
        bounds = [len(tensors) * part // holders for part in range(holders + 1)]
        parts = [tensors[start:end] for start, end in pairwise(bounds)]
        if empty_first:
            parts.insert(0, [])
        head = _metadata_bytes(whole)
        paths = []
        for number, part in enumerate(parts, 1):
            stated: dict[str, Any] = {
                "split.no": Raw(U16, struct.pack("<H", number - 1)),
                "split.count": Raw(U16, struct.pack("<H", files)),
                "split.tensors.count": Raw(I32, struct.pack("<i", len(tensors))),
                **((keys or {}).get(number, {})),
            }
            kept = {key: found for key, found in stated.items() if found is not None}
            paths.append(folder / f"{model.stem}-{number:05d}-of-{files:05d}.gguf")
            keys_before = (len(whole.metadata), head) if number == 1 else (0, b"")
            paths[-1].write_bytes(_file(*keys_before, kept, part))
    return paths


def _metadata_bytes(whole: GgufFile) -> bytes:
    """The keys and values of a file, as they stand in it."""
    end = parse_header(whole.path, whole.file.data).end
    of_tensors = sum(8 + len(each.name.encode()) + 4 + 8 * len(each.shape) + 4 + 8 for each in whole.tensors.values())
    return whole.file.data[24 : end - of_tensors].tobytes()


def _file(keys: int, head: bytes, more: Mapping[str, Any], tensors: Sequence[TensorInfo]) -> bytes:
    content = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), keys + len(more)) + head
    content += b"".join(string(key) + value(found) for key, found in more.items())
    data = bytearray()
    for tensor in tensors:
        data += bytes(-len(data) % _ALIGNMENT)
        content += string(tensor.name) + struct.pack("<I", len(tensor.shape))
        content += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape) + struct.pack("<IQ", tensor.type, len(data))
        data += tensor.data.tobytes()
    return content + bytes(-len(content) % _ALIGNMENT) + bytes(data)


if __name__ == "__main__":
    split_model(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
