"""Every message that crosses a process boundary; docs/protocol.md tells who sends what, when and why.

Ask with a verb, report with what happened. Array fields name their dtype and shape; `codec` checks both, and
`__post_init__` checks what one message can know about itself, before anybody acts on it.
"""

from __future__ import annotations

from protocol.messages.assigning import Assign, AssignFailed, AssignProgress, AssignReady
from protocol.messages.base import (
    ALL_EXPERTS,
    AS_CONFIGURED,
    F32,
    I8,
    I32,
    I64,
    LOOKAHEAD_ROWS,
    MAX_BEAT_S,
    MAX_ENTRIES_PER_ROW,
    MAX_ENTRY_NS,
    MAX_REASON,
    MAX_ROWS,
    MAX_STAGED,
    MAX_STAGED_S,
    MAX_THREADS,
    MIN_BEAT_S,
    NO_EXPERTS,
    NO_RANK,
    PROTOCOL,
    U8,
    Message,
    Spec,
)
from protocol.messages.exchange import CommitExchange, ExchangeCommitted, ExchangeFailed, ExchangeStaged, StageExchange
from protocol.messages.hello import Hello, Refused, SayHello, Welcome
from protocol.messages.life import Beat, BeatSeen, Drain, Drained, Stop, Stopped
from protocol.messages.looking_ahead import LayerInput, Warm
from protocol.messages.requests import AskStatus, Cancel, Finished, Prefilled, RequestFailed, Status, Submit, Token
from protocol.messages.weights import (
    MAX_DIGESTS,
    MAX_PIECE_BYTES,
    AskDigests,
    AskHolders,
    AskModel,
    Digests,
    FetchPiece,
    Holders,
    ModelOffer,
    OfferPieces,
    PieceBytes,
    PieceFailed,
)
from protocol.messages.work import OpenWork, RunExperts, Sums, WorkFailed

Any_ = (
    Hello | Welcome | Refused | SayHello | Assign | AssignProgress | AssignReady | AssignFailed | StageExchange
    | ExchangeStaged | CommitExchange | ExchangeCommitted | ExchangeFailed | Beat | BeatSeen | Stop | Stopped
    | Drain | Drained | OpenWork | RunExperts | Sums | WorkFailed | LayerInput | Warm | Submit | Cancel | Prefilled
    | Token | Finished | RequestFailed | AskStatus | Status | AskModel | ModelOffer | FetchPiece | PieceBytes
    | PieceFailed | AskDigests | Digests | OfferPieces | AskHolders | Holders
)  # fmt: skip

__all__ = [
    "ALL_EXPERTS",
    "AS_CONFIGURED",
    "F32",
    "I8",
    "I32",
    "I64",
    "LOOKAHEAD_ROWS",
    "MAX_BEAT_S",
    "MAX_DIGESTS",
    "MAX_ENTRIES_PER_ROW",
    "MAX_ENTRY_NS",
    "MAX_PIECE_BYTES",
    "MAX_REASON",
    "MAX_ROWS",
    "MAX_STAGED",
    "MAX_STAGED_S",
    "MAX_THREADS",
    "MIN_BEAT_S",
    "NO_EXPERTS",
    "NO_RANK",
    "PROTOCOL",
    "U8",
    "Any_",
    "AskDigests",
    "AskHolders",
    "AskModel",
    "AskStatus",
    "Assign",
    "AssignFailed",
    "AssignProgress",
    "AssignReady",
    "Beat",
    "BeatSeen",
    "Cancel",
    "CommitExchange",
    "Digests",
    "Drain",
    "Drained",
    "ExchangeCommitted",
    "ExchangeFailed",
    "ExchangeStaged",
    "FetchPiece",
    "Finished",
    "Hello",
    "Holders",
    "LayerInput",
    "Message",
    "ModelOffer",
    "OfferPieces",
    "OpenWork",
    "PieceBytes",
    "PieceFailed",
    "Prefilled",
    "Refused",
    "RequestFailed",
    "RunExperts",
    "SayHello",
    "Spec",
    "StageExchange",
    "Status",
    "Stop",
    "Stopped",
    "Submit",
    "Sums",
    "Token",
    "Warm",
    "Welcome",
    "WorkFailed",
]
