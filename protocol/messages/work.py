"""What every layer sends: work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from protocol.messages.base import F32, I8, I32, I64, U8, Message, Spec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenWork(Message):
    """Worker to coordinator, first on the work connection and whenever that was silent: who this is.

    It may come again at any time, then perhaps from another peer id: libzmq reconnects under a new one.
    """

    token: str  # from Welcome; an unknown one is answered by SayHello


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunExperts(Message):
    """Coordinator to worker: apply one layer's experts. Answered by Sums or WorkFailed.

    Activations travel quantised (codes and scales) or, where the layer's gate or up is not quantised, as fp32
    values; the arrays of the other form are empty.
    """

    session: str
    placement: int
    step: int
    layer: int
    attempt: int  # answers to an older attempt are counted and dropped
    codes: Annotated[I8, Spec("i1", 2)]  # (rows, width), -127..127, or (0, 0)
    scales: Annotated[F32, Spec("f4", 2)]  # (rows, width / 32)
    values: Annotated[F32, Spec("f4", 2)]  # (rows, width), or (0, 0)
    row: Annotated[I32, Spec("i4", 1)]  # (rows,): the window's row each activation belongs to, ascending
    entry_expert: Annotated[I32, Spec("i4", 1)]  # (entries,): ascending, all held by the receiver
    entry_row: Annotated[I32, Spec("i4", 1)]  # (entries,): index into `codes` or `values`, ascending in an expert
    entry_weight: Annotated[F32, Spec("f4", 1)]  # (entries,): router weight, applied by the receiver, once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums(Message):
    """Worker to coordinator: for each window row, its weighted experts' sum on the fixed-point grid.

    A row for which the worker computed one expert travels as that weighted fp32 row; the others as integers, in
    48 bits where all of them fit, else in 64. Rows are the window's, as named by `RunExperts.row`.
    """

    session: str
    step: int
    layer: int
    attempt: int
    single_row: Annotated[I32, Spec("i4", 1)]
    single: Annotated[F32, Spec("f4", 2)]  # (single rows, width)
    sum_row: Annotated[I32, Spec("i4", 1)]
    sum48: Annotated[U8, Spec("u1", 3)]  # (sum rows, width, 6), or empty
    sum64: Annotated[I64, Spec("i8", 2)]  # (sum rows, width), or empty
    busy_us: int
    wait_us: int  # since the previous answer left


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkFailed(Message):
    """Worker to coordinator: this RunExperts cannot be answered here; the worker goes on."""

    session: str
    step: int
    layer: int
    attempt: int
    expert: int  # -1 when no single expert is to blame
    reason: str
