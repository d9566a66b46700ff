"""What a model file holds and whether it can be run here: values from headers, no weights are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.tokenizer import Tokenizer
from coordinator.vocabulary import Vocabulary
from protocol.errors import ModelError
from protocol.geometry import EMBEDDING, HEAD, Geometry
from protocol.gguf import TensorInfo
from protocol.holes import experts_there, hole_problems, parts_there
from protocol.layout import dense_problems, expert_problems
from protocol.quant_types import RUNNABLE, TensorType
from protocol.shards import ModelFiles

_PARTS = (
    ("embedding", re.compile(re.escape(EMBEDDING))),
    ("norms", re.compile(r".*norm\.weight")),
    ("attention", re.compile(r"blk\.\d+\.attn_.*")),
    ("router", re.compile(r"blk\.\d+\.ffn_gate_inp\.weight")),
    ("experts, gate", re.compile(r"blk\.\d+\.ffn_gate(_exps|\.\d+)\.weight")),
    ("experts, up", re.compile(r"blk\.\d+\.ffn_up(_exps|\.\d+)\.weight")),
    ("experts, down", re.compile(r"blk\.\d+\.ffn_down(_exps|\.\d+)\.weight")),
    ("dense layers", re.compile(r"blk\.\d+\.ffn_(gate|up|down)\.weight")),
    ("head", re.compile(re.escape(HEAD))),
)
"""Names of parts in the order of a token's way, each with the names of its tensors."""

_OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """All tensors of one purpose and one type."""

    name: str
    type: TensorType
    packed: bool
    """Whether their rows are interleaved (docs/packs.md)."""
    tensors: int
    bytes: int
    token_bytes: int | None
    """Read for one token of one sequence; None if the model's numbers do not say."""

    @property
    def of_experts(self) -> bool:
        """Whether workers hold it; the coordinator holds everything else."""
        return self.name.startswith("experts")

    @property
    def runnable(self) -> bool:
        """Whether a kernel computes its type."""
        return self.type in RUNNABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Of what a pack was made."""

    source: str
    """The first file of the model, without its folder."""
    fingerprint: str
    """Of that model, and so of the pack."""
    share: int | None
    """None if everything is there, else the number of a worker's share, from 1."""
    shares: int | None
    """How many there are of these."""
    experts: int | None
    """That the share has, of all layers."""
    bytes: int
    """Of the tensors, as far as they are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """One model. Numbers are None where the metadata does not have them or cannot be used."""

    architecture: str | None
    name: str | None
    geometry: Geometry | None
    tokenizer: str
    pack: Made | None
    """If it is a pack."""
    parts: tuple[Part, ...]
    problems: tuple[str, ...]
    """Everything that keeps it from being run, one sentence each; empty if it can be run."""

    @property
    def dense_bytes(self) -> int:
        """Bytes that the coordinator holds."""
        return sum(part.bytes for part in self.parts if not part.of_experts)

    @property
    def expert_bytes(self) -> int:
        """Bytes of all experts."""
        return sum(part.bytes for part in self.parts if part.of_experts)

    def position_bytes(self, element_bytes: int) -> int | None:
        """Keys and values of one position of a sequence, in elements of so many bytes."""
        if (of := self.geometry) is None:
            return None
        return 2 * of.layers * of.kv_heads * of.head_dim * element_bytes


def inspect(files: ModelFiles) -> Inspection:
    """Look at everything; whatever is wrong becomes one of the problems."""
    problems: list[str] = []
    geometry = None
    try:
        geometry = Geometry.read(files)
        problems += geometry.unsupported(files)
        problems += dense_problems(files, geometry)
        problems += expert_problems(files, geometry)
        experts_there(files, geometry)
    except ModelError as error:
        problems += [str(error), *_other_types(files)]
    problems += hole_problems(files)
    try:
        vocabulary = Vocabulary.of(files.metadata)
        Tokenizer(vocabulary)  # refuses what it cannot cut up as the model's own tokenizer does
        tokenizer = f"byte-level BPE ({vocabulary.pre}), {len(vocabulary.tokens)} tokens"
    except ModelError as error:
        tokenizer = "cannot be read"
        problems.append(str(error))
    return Inspection(
        architecture=_text(files, "general.architecture"),
        name=_text(files, "general.name"),
        geometry=geometry,
        tokenizer=tokenizer,
        pack=_made(files),
        parts=tuple(_parts(files, geometry)),
        problems=tuple(problem.removeprefix(f"{files.path}: ") for problem in problems),
    )


def _made(files: ModelFiles) -> Made | None:
    if (pack := files.pack) is None:
        return None
    spans = (parts_there(tensor, pack) for tensor in files.tensors.values())
    return Made(
        source=pack.source,
        fingerprint=pack.fingerprint,
        share=None if pack.share is None else pack.share.number,
        shares=None if pack.share is None else pack.share.count,
        experts=None if pack.experts is None else int(pack.experts.sum()),
        bytes=sum(int((span[:, 1] - span[:, 0]).sum()) for span in spans),
    )


def _parts(files: ModelFiles, geometry: Geometry | None) -> Iterator[Part]:
    grouped: dict[tuple[int, TensorType, bool], list[TensorInfo]] = {}
    names = [name for name, _ in _PARTS] + [_OTHER]
    for tensor in files.tensors.values():
        place = next((i for i, (_, pattern) in enumerate(_PARTS) if pattern.fullmatch(tensor.name)), len(_PARTS))
        grouped.setdefault((place, tensor.type, tensor.packed), []).append(tensor)
    for (place, kind, packed), tensors in sorted(grouped.items()):
        count = sum(tensor.bytes for tensor in tensors)
        yield Part(
            name=names[place],
            type=kind,
            packed=packed,
            tensors=len(tensors),
            bytes=count,
            token_bytes=_token_bytes(names[place], count, geometry),
        )


def _token_bytes(part: str, count: int, geometry: Geometry | None) -> int | None:
    if geometry is None:
        return None
    if part == "embedding" and not geometry.tied_head:  # else it is read whole, as the head
        return count // geometry.vocabulary
    if part.startswith("experts"):
        return count * geometry.experts_used // geometry.experts
    return count


def _other_types(files: ModelFiles) -> Iterator[str]:
    """Types that no kernel computes, where the tensors could not be looked at one by one."""
    for kind in sorted({tensor.type for tensor in files.tensors.values()} - RUNNABLE):
        yield f"{files.path}: type {kind.name} is not supported"


def _text(files: ModelFiles, key: str) -> str | None:
    found = files.metadata.get(key)
    return found if isinstance(found, str) else None
