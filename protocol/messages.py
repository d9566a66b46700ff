"""Every message that crosses a process boundary; docs/protocol.md tells who sends what, when and why.

Ask with a verb, report with what happened. Array fields name their dtype and shape; `codec` checks both, and
`__post_init__` checks what one message can know about itself, before anybody acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ProtocolError

PROTOCOL = 6
"""docs/protocol.md tells what changed; the handshake refuses any other number."""

MAX_ROWS = 512
"""Rows of one window at most: bounds every array on the wire."""

MAX_ENTRIES_PER_ROW = 31
"""Experts of one row at most: so many weighted rows fit a 64-bit sum on the fixed-point grid."""

MAX_THREADS = 1024
"""Of one process: its share of a team's work is measured by them."""

LOOKAHEAD_ROWS = 8
"""Rows of a layer's input that are published at most: of more rows a layer needs most of its experts anyway."""

MIN_BEAT_S, MAX_BEAT_S = 0.01, 2.0
"""Bounds of the interval between beats, in seconds."""

MAX_STAGED = 16
"""Exchanges that a worker stages at once at most: each takes the memory of one expert more."""

MAX_STAGED_S = 60.0
"""How long an exchange may stay staged, in seconds."""

AS_CONFIGURED = -1
"""Submit.drafts that leave it to the coordinator."""

MAX_REASON = 300
"""Characters of a reason that are kept and shown; whoever gets a longer one cuts it."""

I8 = NDArray[np.int8]
U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Spec:
    """What an array field must look like on the wire: its dtype and its number of dimensions."""

    dtype: str
    dimensions: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message:
    """What all messages have in common: nothing but their kind, the class name."""


ALL_EXPERTS: U8 = np.empty((0, 0), np.uint8)
"""`Hello.able` of who has the weights of all, or holds none."""

NO_RANK: I32 = np.empty((0, 0), np.int32)
"""`Assign.rank` of a coordinator that does not know which experts are used most."""


def _at_least(lowest: int, **fields: int) -> None:
    for name, value in fields.items():
        if value < lowest:
            raise ProtocolError(f"{name} must be {lowest} or more, found {value}")


# --- control: hello ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hello(Message):
    """Worker or client to coordinator, first on the control connection. Answered by Welcome or Refused."""

    protocol: int
    role: str  # "worker", "peer", a worker whose experts lie in a GPU's memory, "lookahead" or "client"
    name: str
    incarnation: str  # fresh random hex for each life of a process
    pid: int
    host: str
    fingerprint: str  # of the model file, see protocol.fingerprint
    geometry: dict[str, int]  # layers, experts, width, expert_width
    isa: str
    threads: int
    room: int  # bytes of experts that it can hold; -1: any number of them, where they lie
    pages: str  # equal for whoever computes from the same pages of memory, see protocol.pages; empty: from its own
    able: Annotated[U8, Spec("u1", 2)]  # (layers, experts): 1 for those whose weights it has; (0, 0) if all

    def __post_init__(self) -> None:
        if self.able.size and self.able.max() > 1:
            raise ProtocolError(f"able must be 0 or 1 everywhere, found {self.able.max()}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Welcome(Message):
    """Coordinator to worker or client: you are in. A worker answers with OpenWork on the work connection."""

    session: str  # incarnation of the coordinator
    token: str  # opens the work connection
    work: str  # endpoint of the work connection
    inputs: str  # endpoint where layer inputs are published
    beat_s: float  # interval at which beats are expected

    def __post_init__(self) -> None:
        if not MIN_BEAT_S <= self.beat_s <= MAX_BEAT_S:
            raise ProtocolError(f"beat_s must lie in {MIN_BEAT_S}..{MAX_BEAT_S}, found {self.beat_s}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused(Message):
    """Coordinator to worker or client: every mismatch as (field, found, expected). The sender gives up."""

    mismatches: list[list[str]]

    def __post_init__(self) -> None:
        if not self.mismatches or any(len(mismatch) != 3 for mismatch in self.mismatches):
            raise ProtocolError("a refusal names one mismatch at least, each as field, found, expected")

    def in_words(self) -> str:
        """All of it, for people; not escaped."""
        return "; ".join(f"{field} is {found}, expected {expected}" for field, found, expected in self.mismatches)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SayHello(Message):
    """Coordinator to a peer that it does not know, or gave up: say Hello again, on a fresh control connection."""


# --- control: placement -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assign(Message):
    """Coordinator to worker: hold these experts. Answered by AssignProgress, then AssignReady or AssignFailed."""

    placement: int  # version; RunExperts names the version it was planned from
    in_force: int  # the version that work is planned from until then; all other earlier ones are void
    held: Annotated[U8, Spec("u1", 2)]  # (layers, experts): 1 where the receiver holds the expert
    rank: Annotated[I32, Spec("i4", 2)]  # (layers, experts): 0 for the one used most, and so on; (0, 0) if unknown

    def __post_init__(self) -> None:
        _at_least(0, placement=self.placement, in_force=self.in_force)
        if self.held.size and self.held.max() > 1:
            raise ProtocolError(f"held must be 0 or 1 everywhere, found {self.held.max()}")
        if self.rank.size:
            _check_rank(self.rank, self.held.shape)


def _check_rank(rank: I32, shape: tuple[int, ...]) -> None:
    """ProtocolError unless it has every number below its size once, and this shape."""
    if rank.shape != shape:
        raise ProtocolError(f"rank must be {shape} (layers, experts) as held is, or (0, 0), found {rank.shape}")
    if rank.min() < 0 or rank.max() >= rank.size:  # so bincount takes no more memory than rank does
        raise ProtocolError(f"rank must lie in 0..{rank.size - 1}, found {rank.min()}..{rank.max()}")
    times = np.bincount(rank.ravel())
    if times.max() > 1:
        raise ProtocolError(f"rank must have each number once, found {times.argmax()} {times.max()} times")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignProgress(Message):
    """Worker to coordinator: layers made ready so far."""

    placement: int
    done: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.done <= self.total:
            raise ProtocolError(f"progress of {self.done} in {self.total} is none")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignReady(Message):
    """Worker to coordinator: everything assigned by this placement can be run."""

    placement: int
    experts: int  # how many (layer, expert) pairs are held


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignFailed(Message):
    """Worker to coordinator: this placement cannot be held, and why."""

    placement: int
    reason: str


# --- control: exchanges -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageExchange(Message):
    """Coordinator to worker: hold one more until CommitExchange. Answered by ExchangeStaged or ExchangeFailed.

    A GPU takes one expert of a layer and gives another back; whoever holds the one is to hold the other in its place.
    """

    exchange: int  # number, not that of another one that is staged
    placement: int  # version whose set is changed: the one assigned last
    layer: int
    leaves: int  # held by the receiver, and not any more after CommitExchange
    comes: int  # not held; from its answer on it is
    within_s: float  # dropped if it is not committed so soon

    def __post_init__(self) -> None:
        if not 0 < self.within_s <= MAX_STAGED_S:
            raise ProtocolError(f"within_s must be above 0 and {MAX_STAGED_S} at most, found {self.within_s}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeStaged(Message):
    """Worker to coordinator: both experts can be run."""

    exchange: int
    residency: int  # as in Beat


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitExchange(Message):
    """Coordinator to worker: hold `leaves` no more. Answered by ExchangeCommitted or ExchangeFailed."""

    exchange: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeCommitted(Message):
    """Worker to coordinator: `comes` is held in place of `leaves`."""

    exchange: int
    residency: int  # as in Beat


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeFailed(Message):
    """Worker to coordinator: this was not staged, or not committed, or was dropped, and why."""

    exchange: int
    reason: str


# --- control: life ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beat(Message):
    """Worker to coordinator, every beat_s: alive, and how far the compute loop is. Answered by BeatSeen."""

    token: str
    step: int  # of the last RunExperts of this membership that was answered, -1 before the first
    layer: int
    calls: int
    entries: int
    busy_us: int  # time in the kernels
    wait_us: int  # time in the compute loop waiting for work
    dropped: int  # malformed or misdirected messages
    resident_bytes: int
    residency: int  # how often what is held has changed in this session
    source: str  # where its experts come from: mapped, copies, arena, shared or direct; vram for a peer
    tiers: dict[str, int]  # what the tiers have counted, see expert_worker.sources.source.Counters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BeatSeen(Message):
    """Coordinator to worker: the answer to Beat; a worker that misses it for long enough leaves."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stop(Message):
    """Coordinator to worker, or client to coordinator: finish what is in hand and exit. Answered by Stopped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stopped(Message):
    """Worker to coordinator, last message: it leaves of its own will."""


# --- work -------------------------------------------------------------------------------------------------------


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


# --- lookahead --------------------------------------------------------------------------------------------------


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
        _at_least(0, step=self.step, layer=self.layer)
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
        _at_least(0, step=self.step, layer=self.layer)
        if len(self.experts) and (self.experts[0] < 0 or (self.experts[1:] <= self.experts[:-1]).any()):
            raise ProtocolError("experts must ascend from 0 or more")


# --- requests ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Submit(Message):
    """Client to coordinator: continue this prompt. Answered by Prefilled, Token, then Finished or RequestFailed."""

    request: str
    prompt_ids: Annotated[I32, Spec("i4", 1)]
    max_tokens: int
    stop_ids: list[int]  # generation ends after one of these; empty to go on
    temperature: float  # 0 is greedy
    top_k: int  # 0 is all
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_window: int
    seed: int
    drafts: int  # guessed tokens that a step may verify; 0 is none, AS_CONFIGURED leaves it to the coordinator


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cancel(Message):
    """Client to coordinator: no more tokens of this request are wanted. Answered by Finished."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefilled(Message):
    """Coordinator to client: prompt rows read so far."""

    request: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Token(Message):
    """Coordinator to client: one generated token and the digests up to and including it."""

    request: str
    index: int  # 0 for the first generated token
    id: int
    sha256_logits: str  # hex, fp32 little-endian logits of positions 0..index
    elapsed_us: int  # since the previous token, or since the end of the prompt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finished(Message):
    """Coordinator to client: the answer is complete ("length", "stop", "cancelled"), with what it cost."""

    request: str
    reason: str
    prompt_us: int
    decode_us: int
    report: dict[str, Any]  # isa, threads, local_entries, workers; as Status.report


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestFailed(Message):
    """Coordinator to client: this request alone failed, and why."""

    request: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskStatus(Message):
    """Client to coordinator, no Hello needed. Answered by Status."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Status(Message):
    """Coordinator to client: state, members and counters, for people and tests."""

    report: dict[str, Any] = field(default_factory=dict)


Any_ = (
    Hello | Welcome | Refused | SayHello | Assign | AssignProgress | AssignReady | AssignFailed | StageExchange
    | ExchangeStaged | CommitExchange | ExchangeCommitted | ExchangeFailed | Beat | BeatSeen | Stop | Stopped
    | OpenWork | RunExperts | Sums | WorkFailed | LayerInput | Warm | Submit | Cancel | Prefilled | Token | Finished
    | RequestFailed | AskStatus | Status
)  # fmt: skip
