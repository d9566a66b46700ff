"""What those say who predict: inputs and hints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from protocol.errors import ProtocolError
from protocol.messages.base import F32, I8, I32, LOOKAHEAD_ROWS, Message, Spec, at_least


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerInput(Message):
    """Coordinator to every lookahead process that listens: what the experts of a layer take. Answered by nothing.

    As in RunExperts either codes and scales travel, or values; only the first rows of a large window do.
    """

    session: str
    step: int
    layer: int
    codes: Annotated[I8, Spec("i1", 2)]  # (rows, width), or (0, 0)
    scales: Annotated[F32, Spec("f4", 2)]  # (rows, width / 32)
    values: Annotated[F32, Spec("f4", 2)]  # (rows, width), or (0, 0)

    def __post_init__(self) -> None:
        at_least(0, step=self.step, layer=self.layer)
        quantised = len(self.codes) > 0
        rows, width = (self.codes if quantised else self.values).shape
        if not 1 <= rows <= LOOKAHEAD_ROWS or not width:
            raise ProtocolError(f"activations of {rows} rows and {width} columns, 1 to {LOOKAHEAD_ROWS} rows expected")
        if quantised and (width % 32 or self.scales.shape != (rows, width // 32) or self.values.size):
            raise ProtocolError(f"codes of {rows} x {width} with scales of {self.scales.shape}, one for 32 expected")
        if not quantised and (self.codes.size or self.scales.size):
            raise ProtocolError("activations travel as codes and scales, or as values, not as both")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Warm(Message):
    """Lookahead process to the workers of its host: a layer will need these experts soon. Answered by nothing."""

    session: str
    step: int  # of the LayerInput that this was predicted from
    layer: int  # whose experts they are: a later one than that LayerInput's
    experts: Annotated[I32, Spec("i4", 1)]  # ascending from 0 or more

    def __post_init__(self) -> None:
        at_least(0, step=self.step, layer=self.layer)
        if len(self.experts) and (self.experts[0] < 0 or (self.experts[1:] <= self.experts[:-1]).any()):
            raise ProtocolError("experts must ascend from 0 or more")
