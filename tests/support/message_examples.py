"""One valid message of every class, and hypothesis strategies that make many."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from protocol.fields import MAX_ITEMS, MAX_TEXT_BYTES, TABLES
from protocol.messages import (
    ALL_EXPERTS,
    F32,
    I32,
    LOOKAHEAD_ROWS,
    MAX_BEAT_S,
    MAX_DIGESTS,
    MAX_ENTRIES_PER_ROW,
    MAX_PIECE_BYTES,
    MAX_ROWS,
    MAX_STAGED_S,
    MIN_BEAT_S,
    NO_EXPERTS,
    NO_RANK,
    PROTOCOL,
    Any_,
    AskDigests,
    AskHolders,
    AskModel,
    AskStatus,
    Assign,
    AssignFailed,
    AssignProgress,
    AssignReady,
    Beat,
    BeatSeen,
    Cancel,
    CommitExchange,
    Digests,
    Drain,
    Drained,
    ExchangeCommitted,
    ExchangeFailed,
    ExchangeStaged,
    FetchPiece,
    Finished,
    Hello,
    Holders,
    LayerInput,
    Message,
    ModelOffer,
    OfferPieces,
    OpenWork,
    PieceBytes,
    PieceFailed,
    Prefilled,
    Refused,
    RequestFailed,
    RunExperts,
    SayHello,
    StageExchange,
    Status,
    Stop,
    Stopped,
    Submit,
    Sums,
    Token,
    Warm,
    Welcome,
    WorkFailed,
)

KEY = "".join(chr(letter) for letter in range(ord("a"), ord("a") + 20)) * 2
"""Of the form of a public key."""


def hello(**changes: Any) -> Hello:
    """A worker's Hello."""
    made = Hello(
        protocol=PROTOCOL,
        role="worker",
        name="box-a-0",
        incarnation="4f1d",
        pid=4711,
        host="box-a",
        fingerprint="0123456789abcdef",
        geometry={"layers": 2, "dense_layers": 0, "experts": 4, "width": 64, "expert_width": 32},
        isa="scalar",
        threads=1,
        entry_ns=0,
        memory=-1,
        room=-1,
        pages="0123456789abcdef",
        able=ALL_EXPERTS,
        held=NO_EXPERTS,
    )
    return replace(made, **changes)


def welcome(**changes: Any) -> Welcome:
    """The answer to `hello`."""
    made = Welcome(session="s1", token="t1", work="ipc://@work", inputs="ipc://@inputs", beat_s=0.5)
    return replace(made, **changes)


def run_experts(rows: int = 1, experts: tuple[int, ...] = (0, 2), width: int = 64, **changes: Any) -> RunExperts:
    """Every row needs all of `experts`; quantised activations made from the row number."""
    row = np.arange(rows, dtype=np.int32)
    made = RunExperts(
        session="s1",
        placement=1,
        step=3,
        layer=1,
        attempt=0,
        codes=np.broadcast_to((row + 1).astype(np.int8)[:, None], (rows, width)).copy(),
        scales=np.full((rows, width // 32), 0.5, np.float32),
        values=np.empty((0, 0), np.float32),
        row=row,
        entry_expert=np.repeat(np.array(experts, np.int32), rows),
        entry_row=np.tile(row, len(experts)),
        entry_weight=np.full(rows * len(experts), 0.25, np.float32),
    )
    return replace(made, **changes)


def plain(values: F32) -> dict[str, Any]:
    """Changes that make a RunExperts carry fp32 values."""
    none = np.empty((0, 0), np.float32)
    return {"codes": np.empty((0, 0), np.int8), "scales": none, "values": values}


def sums(rows: int = 2, width: int = 64, **changes: Any) -> Sums:
    """One single row, and `rows` sums in 48 bits."""
    made = Sums(
        session="s1",
        step=3,
        layer=1,
        attempt=0,
        single_row=np.array([9], np.int32),
        single=np.linspace(-1, 1, width, dtype=np.float32)[None, :],
        sum_row=np.arange(rows, dtype=np.int32),
        sum48=np.arange(rows * width * 6, dtype=np.uint64).astype(np.uint8).reshape(rows, width, 6),
        sum64=np.empty((0, width), np.int64),
        busy_us=100,
        wait_us=10,
    )
    return replace(made, **changes)


def layer_input(rows: int = 2, width: int = 64, **changes: Any) -> LayerInput:
    """Quantised activations; with `**plain(values)` they are fp32."""
    taken = run_experts(rows=rows, width=width)
    made = LayerInput(session="s1", step=3, layer=1, codes=taken.codes, scales=taken.scales, values=taken.values)
    return replace(made, **changes)


def warm(*experts: int, **changes: Any) -> Warm:
    """A hint for layer 2."""
    made = Warm(session="s1", step=3, layer=2, experts=np.array(experts, np.int32))
    return replace(made, **changes)


def submit(**changes: Any) -> Submit:
    """A greedy request."""
    made = Submit(
        request="r1",
        prompt_ids=np.array([1, 2, 3], np.int32),
        max_tokens=5,
        stop_ids=[7],
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        repeat_penalty=1.0,
        repeat_window=0,
        seed=1,
        drafts=4,
    )
    return replace(made, **changes)


def beat(**changes: Any) -> Beat:
    """A beat of a worker that has answered three calls."""
    made = Beat(
        token="t1",
        step=1,
        layer=2,
        calls=3,
        entries=4,
        busy_us=5,
        wait_us=6,
        dropped=7,
        resident_bytes=8,
        round_trip_us=-1,
        residency=9,
        working_us=10,
        cpu_us=11,
        source="copies",
        tiers={"copy_hits": 9, "file_reads": 10},
    )
    return replace(made, **changes)


def stage_exchange(**changes: Any) -> StageExchange:
    """Expert 0 of layer 1 leaves, 2 comes."""
    made = StageExchange(exchange=7, placement=1, layer=1, leaves=0, comes=2, within_s=5.0)
    return replace(made, **changes)


def model_offer(**changes: Any) -> ModelOffer:
    """Of a model in two files."""
    made = ModelOffer(fingerprint="0123456789abcdef", names=["a.gguf", "b.gguf"], sizes=[100, 90], heads=[30, 20])
    return replace(made, **changes)


def piece_bytes(count: int) -> PieceBytes:
    """So many bytes of a file."""
    return PieceBytes(file=0, offset=4096, sha256="0" * 64, data=np.arange(count, dtype=np.uint64).astype(np.uint8))


def ask_digests(count: int, **changes: Any) -> AskDigests:
    """Of so many pieces, one behind the other."""
    pieces = np.arange(count, dtype=np.int64)
    made = AskDigests(fingerprint="0123456789abcdef", file=0, offset=pieces * 4096, bytes=pieces + 1)
    return replace(made, **changes)


def a_rank(size: int) -> I32:
    """(size, size): the last expert of the last layer is used most."""
    return np.arange(size * size, dtype=np.int32)[::-1].reshape(size, size)


def examples() -> list[Message]:
    """All classes; those with several forms more than once."""
    report = {"state": "ready", "step": 4, "busy_s": 0.5, "workers": [{"name": "box-a-0", "failed": None, "ok": True}]}
    return [
        hello(),
        welcome(),
        Refused(mismatches=[["protocol", "2", "1"]]),
        SayHello(),
        Assign(placement=1, in_force=0, held=np.eye(3, dtype=np.uint8), rank=a_rank(3)),
        Assign(placement=1, in_force=0, held=np.eye(3, dtype=np.uint8), rank=NO_RANK),
        AssignProgress(placement=1, done=1, total=2),
        AssignReady(placement=1, experts=3),
        AssignFailed(placement=1, reason="no room"),
        stage_exchange(),
        ExchangeStaged(exchange=7, residency=3),
        CommitExchange(exchange=7),
        ExchangeCommitted(exchange=7, residency=4),
        ExchangeFailed(exchange=7, reason="x"),
        beat(),
        BeatSeen(session="s1"),
        Stop(),
        Stopped(),
        Drain(name="box-a-0"),
        Drained(name="box-a-0", reason=""),
        OpenWork(token="t1"),
        run_experts(),
        run_experts(rows=3, experts=(0, 1, 3)),
        run_experts(rows=64, width=2048),  # large enough for frames of their own
        run_experts(rows=2, **plain(np.ones((2, 64), np.float32))),
        sums(),
        sums(rows=40, width=2048),
        sums(sum48=np.empty((0, 64, 6), np.uint8), sum64=np.full((2, 64), -(2**62), np.int64)),
        WorkFailed(session="s1", step=3, layer=1, attempt=0, expert=-1, reason="x"),
        layer_input(),
        layer_input(**plain(np.ones((8, 4096), np.float32))),
        warm(0, 2, 5),
        warm(),
        submit(),
        Cancel(request="r1"),
        Prefilled(request="r1", done=1, total=3),
        Token(request="r1", index=0, id=5, sha256_logits="00", elapsed_us=1),
        Finished(request="r1", reason="stop", prompt_us=1, decode_us=2, report=report),
        RequestFailed(request="r1", reason="x"),
        AskStatus(),
        Status(report=report),
        AskModel(protocol=PROTOCOL),
        model_offer(),
        FetchPiece(fingerprint="0123456789abcdef", file=0, offset=4096, bytes=1 << 20),
        piece_bytes(3),
        piece_bytes(MAX_PIECE_BYTES),
        PieceFailed(file=0, offset=4096, reason="x"),
        ask_digests(3),
        Digests(file=0, offset=np.arange(3) * 4096, sha256=np.ones((3, 32), np.uint8)),
        OfferPieces(
            fingerprint="0123456789abcdef", endpoint="tcp://10.0.0.2:7700", key=KEY, have=np.eye(3, dtype=np.uint8)
        ),
        AskHolders(fingerprint="0123456789abcdef"),
        Holders(endpoints=["ipc://@a", "ipc://@b"], keys=["", KEY], have=np.ones((2, 3, 4), np.uint8)),
    ]


LONGEST_TEXT = "\N{BRAIN}" * (MAX_TEXT_BYTES // 4)


def largest(frame_bytes: int) -> list[Message]:
    """One sound message of every class, as large as it may be: texts, lists, numbers; arrays that fill their frame."""
    most = 2**63 - 1
    by_annotation: dict[str, Any] = {
        "int": most,
        "str": LONGEST_TEXT,
        "list[int]": [most] * MAX_ITEMS,
        "dict[str, int]": {str(key): most for key in range(MAX_ITEMS)},
        "dict[str, Any]": dict.fromkeys(map(str, range(13)), LONGEST_TEXT),  # more of them are no header
        "list[list[str]]": [[LONGEST_TEXT] * 3] * 5,
    }
    row, none = np.arange(MAX_ROWS, dtype=np.int32), np.empty((0, 0), np.float32)
    arrays: dict[type[Message], dict[str, Any]] = {
        RunExperts: {"values": np.ones((MAX_ROWS, frame_bytes // 4 // MAX_ROWS), np.float32), "row": row}
        | {"codes": np.empty((0, 0), np.int8), "scales": none},
        Sums: {"sum_row": row, "sum48": np.empty((0, 0, 6), np.uint8)}
        | {"sum64": np.full((MAX_ROWS, frame_bytes // 8 // MAX_ROWS), most)},
        LayerInput: {"values": np.ones((LOOKAHEAD_ROWS, frame_bytes // 4 // LOOKAHEAD_ROWS), np.float32)}
        | {"codes": np.empty((0, 0), np.int8), "scales": none},
        Warm: {"experts": np.arange(frame_bytes // 4, dtype=np.int32)},
        Submit: {"prompt_ids": np.full(frame_bytes // 4, 2**31 - 1, np.int32)},
        Assign: {"held": np.ones((1024, frame_bytes // 1024), np.uint8)},
        Hello: {"able": np.ones((1024, frame_bytes // 1024), np.uint8)},
        ModelOffer: {"names": ["\N{BRAIN}" * 40] * MAX_ITEMS},
        FetchPiece: {"bytes": MAX_PIECE_BYTES},
        AskDigests: {"offset": np.arange(MAX_DIGESTS), "bytes": np.full(MAX_DIGESTS, MAX_PIECE_BYTES)},
        Digests: {"offset": np.arange(MAX_DIGESTS), "sha256": np.ones((MAX_DIGESTS, 32), np.uint8)},
        OfferPieces: {"key": KEY, "have": np.ones((1024, frame_bytes // 1024), np.uint8)},
        Holders: {"endpoints": ["\N{BRAIN}" * 40] * 8, "keys": [KEY] * 8}
        | {"have": np.ones((8, 128, frame_bytes // 1024), np.uint8)},
        PieceBytes: {"data": np.ones(min(frame_bytes, MAX_PIECE_BYTES), np.uint8)},
    }
    made = []
    for example in {type(one): one for one in examples()}.values():
        plain = {one.name: by_annotation[one.type] for one in fields(example) if one.type in by_annotation}
        if isinstance(example, Hello):
            plain["protocol"] = PROTOCOL
        made.append(replace(example, **plain | arrays.get(type(example), {})))
    return made


def with_longest_text(message: Message) -> list[Message]:
    """The same message with one of its texts as long as it may be, for each of its texts; keys have one length."""
    texts = [one.name for one in fields(message) if one.type == "str" and one.name != "key"]
    return [replace(message, **{name: LONGEST_TEXT}) for name in texts]


def same(one: object, other: object) -> bool:
    """Whether two messages have the same class and the same fields, arrays bit for bit."""
    if type(one) is not type(other) or not isinstance(one, Message):
        return False
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)]
    return all(_same_value(left, right) for left, right in pairs)


def _same_value(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    return bool(left == right)


INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["", KEY])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
_BY_ANNOTATION: dict[str, st.SearchStrategy[Any]] = {
    "int": INTEGERS,
    "float": FLOATS,
    "str": TEXTS,
    "dict[str, int]": st.dictionaries(TEXTS, INTEGERS, max_size=5),
    "dict[str, Any]": st.dictionaries(TEXTS, PLAIN, max_size=3),
    "list[int]": st.lists(INTEGERS, max_size=5),
    "list[list[str]]": st.lists(st.lists(TEXTS, min_size=3, max_size=3), min_size=1, max_size=4),
}


@st.composite
def _arrays(draw: st.DrawFn, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)


def _row(dtype: np.dtype[Any]) -> st.SearchStrategy[NDArray[Any]]:
    return st.integers(0, 9).flatmap(lambda size: _arrays(dtype, (size,)))


@st.composite
def _run_experts(draw: st.DrawFn) -> RunExperts:
    rows, experts = draw(st.integers(1, 5)), draw(st.sets(st.integers(0, 200), min_size=1, max_size=6))
    assert len(experts) <= MAX_ENTRIES_PER_ROW
    made = run_experts(
        rows, tuple(sorted(experts)), width=32 * draw(st.integers(1, 4)), step=draw(st.integers(0, 2**62))
    )
    if draw(st.booleans()):
        return replace(made, **plain(draw(_arrays(np.dtype("<f4"), (rows, draw(st.integers(1, 40)))))))
    return made


@st.composite
def _sums(draw: st.DrawFn) -> Sums:
    width, rows = draw(st.integers(0, 8)), draw(st.integers(0, 3))
    made = sums(rows, width)
    if draw(st.booleans()):
        wide = draw(_arrays(np.dtype("<i8"), (rows, width)))
        return replace(made, sum48=np.empty((0, width, 6), np.uint8), sum64=wide)
    return made


@st.composite
def _layer_input(draw: st.DrawFn) -> LayerInput:
    rows, width = draw(st.integers(1, LOOKAHEAD_ROWS)), 32 * draw(st.integers(1, 4))
    made = layer_input(rows, width, session=draw(TEXTS), step=draw(st.integers(0, 2**62)))
    if draw(st.booleans()):
        return replace(made, **plain(draw(_arrays(np.dtype("<f4"), (rows, width)))))
    return made


def _any_message(cls: type[Any]) -> st.SearchStrategy[Message]:
    special: dict[type[Any], st.SearchStrategy[Any]] = {
        RunExperts: _run_experts(),
        Sums: _sums(),
        LayerInput: _layer_input(),
        Warm: st.builds(
            lambda experts, **others: warm(*sorted(experts), **others),
            st.sets(st.integers(0, 2**31 - 1), max_size=9),
            session=TEXTS,
            step=st.integers(0, 2**62),
        ),
        Assign: st.builds(
            lambda size, rank: Assign(placement=2, in_force=1, held=np.eye(size, dtype=np.uint8), rank=rank(size)),
            st.integers(0, 9),
            st.sampled_from([lambda size: NO_RANK, a_rank]),
        ),
        AssignProgress: st.builds(lambda done: AssignProgress(placement=1, done=done, total=9), st.integers(0, 9)),
        StageExchange: st.builds(
            stage_exchange,
            **dict.fromkeys(("exchange", "placement", "layer", "leaves", "comes"), INTEGERS),
            within_s=st.floats(0, MAX_STAGED_S, exclude_min=True),
        ),
        Welcome: st.builds(welcome, session=TEXTS, work=TEXTS, inputs=TEXTS, beat_s=st.floats(MIN_BEAT_S, MAX_BEAT_S)),
        ModelOffer: st.builds(
            lambda heads, **others: model_offer(
                names=["x"] * len(heads), sizes=[head + 1 for head in heads], heads=heads, **others
            ),
            st.lists(st.integers(1, 2**62), min_size=1, max_size=4),
            fingerprint=TEXTS,
        ),
        FetchPiece: st.builds(
            FetchPiece,
            fingerprint=TEXTS,
            **dict.fromkeys(("file", "offset"), st.integers(0, 2**62)),
            bytes=st.integers(1, MAX_PIECE_BYTES),
        ),
        AskDigests: st.builds(ask_digests, st.integers(1, MAX_DIGESTS), fingerprint=TEXTS, file=st.integers(0, 2**62)),
        Digests: st.builds(
            lambda count, file: Digests(file=file, offset=np.arange(count), sha256=np.ones((count, 32), np.uint8)),
            *(st.integers(0, MAX_DIGESTS), st.integers(0, 2**62)),
        ),
        OfferPieces: st.builds(
            lambda size, **others: OfferPieces(have=np.eye(size, dtype=np.uint8), **others),
            st.integers(0, 9),
            fingerprint=TEXTS,
            endpoint=TEXTS,
            key=KEYS,
        ),
        Holders: st.builds(
            lambda places, size: Holders(
                endpoints=[endpoint for endpoint, _ in places],
                keys=[key for _, key in places],
                have=np.ones((len(places), size, size + 1), np.uint8),
            ),
            st.lists(st.tuples(TEXTS, KEYS), max_size=4),
            st.integers(0, 5),
        ),
        PieceBytes: st.builds(piece_bytes, st.integers(1, 200_000)),
        Hello: st.builds(
            lambda size, **others: hello(able=np.eye(size, dtype=np.uint8), **others),
            st.integers(0, 9),
            name=TEXTS,
            pid=INTEGERS,
            geometry=_BY_ANNOTATION["dict[str, int]"],
        ),
    }
    if cls in special:
        return special[cls]
    arrays = {field.name: field for field in TABLES[cls.__name__].arrays}
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields(cls):
        array = arrays.get(field.name)
        parts[field.name] = _BY_ANNOTATION[str(field.type)] if array is None else _row(array.dtype)
    return st.builds(cls, **parts)


ANY_MESSAGE: st.SearchStrategy[Message] = st.sampled_from(get_args(Any_)).flatmap(_any_message)
"""Any valid message of any class."""
ANY_STEP_MESSAGE: st.SearchStrategy[Message] = st.sampled_from((RunExperts, Sums)).flatmap(_any_message)
