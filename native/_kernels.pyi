"""The compiled kernels. Arithmetic is stated in docs/arithmetic.md; tests/native holds a NumPy twin of each.

Arrays must be C-contiguous and of the dtype named; a wrong dtype, shape or size raises ValueError or TypeError with
the argument's name before anything is read. Calls that compute release the GIL; those that plan and pack one layer
are too short for it. Nothing is written on error unless said.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Message = TypeVar("_Message")

class NonFiniteError(ValueError):
    """An activation row holds NaN or infinity; args are (message, row)."""

class EntryRangeError(ValueError):
    """A weighted expert output is not finite or reaches 2**22; args are (message, entry index)."""

def isa() -> str:
    """The instruction set in use: "scalar", "avx2", "avx512" or "neon". EXPERTMESH_ISA forces one at import."""

def available_isas() -> list[str]:
    """What this machine can run, best last."""

def use_isa(name: str) -> None:
    """Switch, for tests and benchmarks; ValueError if this machine cannot."""

class Pool:
    """Threads for kernels: `threads` of them, the caller included (so 1 starts none). OSError if they cannot be had."""

    threads: int
    def __init__(self, threads: int) -> None: ...

class Weights:
    """A view of one GGUF tensor: `matrices` matrices of `rows` x `columns` in ggml type `type`; no copy.

    A matrix may be placed elsewhere while threads compute, but no copy taken from one that computes with it.

    `packed` ones have been rearranged by `pack_rows`.

    `data` is uint8, 1-D, of exactly matrices * rows * row bytes, and is kept alive.
    """

    matrices: int
    rows: int
    columns: int
    type: int
    quantised: bool
    """True if the kernels take int8 activations for this type (not F32, F16, BF16)."""
    packed: bool
    def __init__(
        self, data: NDArray[np.uint8], type: int, matrices: int, rows: int, columns: int, packed: bool = False
    ) -> None: ...
    def dequantise(self, matrix: int, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """The named rows as fp32 (len(rows), columns): the embedding lookup."""
    def place(self, matrix: int, copy: NDArray[np.uint8]) -> None:
        """Read it from `copy`, 1-D, of bytes equal to the tensor's, which is kept alive."""
    def unplace(self, matrix: int) -> None:
        """Read it from the tensor again."""
    def placed(self, matrix: int) -> bool:
        """Whether it is read from a copy."""

PACKED_ROWS: int
"""Rows of a group of packed weights."""

def pack_rows(type: int, rows: int, columns: int, source: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Rearrange a matrix of a quantised type for the kernels, PACKED_ROWS rows at a time; the rest stays as it is.

    Both have rows * row bytes; they must not overlap. ValueError for a type that is not quantised.
    """

def unpack_rows(type: int, rows: int, columns: int, source: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """What `pack_rows` was given."""

class Rows:
    """Activation rows, as fp32 values or as int8 codes with one fp32 scale per 32 columns."""

    count: int
    columns: int
    def __init__(self, values: NDArray[np.float32]) -> None:
        """(n, columns) fp32, copied; quantised when first needed. Raises NonFiniteError then, or at `quantise()`."""
    @staticmethod
    def quantised(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> Rows:
        """Codes (n, columns), scales (n, columns / 32); ValueError for -128 and for scales negative or not finite."""
    def quantise(self, pool: Pool | None = None) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Codes and scales (views that live as long as this object)."""
    def values(self) -> NDArray[np.float32]:
        """The fp32 values (a view that lives as long as this object); ValueError for rows made by `quantised`."""

def matmul(pool: Pool, weights: Weights, matrix: int, rows: Rows, out: NDArray[np.float32]) -> None:
    """out (n, weights.rows) = rows @ weights[matrix].T, each dot in the order of docs/arithmetic.md."""

def run_experts(
    pool: Pool,
    gate: Weights,
    up: Weights,
    down: Weights,
    rows: Rows,
    entry_expert: NDArray[np.int32],
    entry_row: NDArray[np.int32],
    entry_weight: NDArray[np.float32],
    entry_slot: NDArray[np.int32],
    singles: NDArray[np.float32],
    sums: NDArray[np.int64],
) -> None:
    """Expert FFN of each entry (ascending by expert), times its weight.

    entry_slot >= 0: the weighted fp32 row is stored in singles[slot]; < 0: it is added on the fixed-point grid to
    sums[-1 - slot]. Raises EntryRangeError with the lowest bad entry; singles and sums then hold a part of the answer.
    """

def pack48(values: NDArray[np.int64]) -> NDArray[np.uint8] | None:
    """(n, width) to (n, width, 6), or None when some value needs more than 48 bits."""

def add_combined(x: NDArray[np.float32], sums: NDArray[np.int64], pool: Pool | None = None) -> None:
    """x += fp32(sums), and sums = 0, in place: the end of a layer."""

def add_rows(x: NDArray[np.float32], y: NDArray[np.float32], pool: Pool | None = None) -> None:
    """x += y, in place: the residual of the attention half."""

def rms_norm(
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    eps: float,
    out: NDArray[np.float32],
    pool: Pool | None = None,
) -> None:
    """Over the last axis of x, weight of that length; out may be x. (rows, width) or (rows, heads, head_dim)."""

def rope_table(
    position: NDArray[np.int32], inverse_frequency: NDArray[np.float64], magnitude: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin times `magnitude`, each (rows, head_dim / 2)."""

def rope(x: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32], pool: Pool | None = None) -> None:
    """Rotate (rows, heads, head_dim) in place, NeoX pairing: column i with i + head_dim / 2."""

class KvCache:
    """Keys and values of one sequence, all layers, up to `capacity` positions; memory is taken as it is used."""

    layers: int
    capacity: int
    kv_heads: int
    head_dim: int
    bytes: int
    """Of all positions, in whole blocks of 64."""
    def __init__(self, layers: int, capacity: int, kv_heads: int, head_dim: int, type: str) -> None:
        """type: "f16" or "f32"."""
    def store(self, layer: int, position: int, key: NDArray[np.float32], value: NDArray[np.float32]) -> None:
        """Write (n, kv_heads, head_dim) at positions position .. position + n - 1."""

def attention(
    pool: Pool,
    layer: int,
    query: NDArray[np.float32],
    caches: Sequence[KvCache],
    row_cache: NDArray[np.int32],
    row_position: NDArray[np.int32],
    out: NDArray[np.float32],
) -> None:
    """query (rows, heads, head_dim), out (rows, heads * head_dim); row i attends to positions 0..row_position[i] of
    caches[row_cache[i]], scaled by 1 / sqrt(head_dim). Keys of those positions must have been stored."""

def route(
    logits: NDArray[np.float32], k: int, normalise: bool, scale: float, pool: Pool | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Router top-k: ids and weights times `scale` (rows, k), best first, ties to the lowest id. NonFiniteError(row)."""

class StepBuffers:
    """The memory of one step, (rows, ...) each, and whose rows they are: row i stands at `row_position[i]` of
    `caches[row_cache[i]]`. One thread uses it at a time.

    Rows of a cache follow each other, in the order of `caches` and of their positions. All arguments are kept alive.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        normed: NDArray[np.float32],
        query: NDArray[np.float32],
        key: NDArray[np.float32],
        value: NDArray[np.float32],
        attended: NDArray[np.float32],
        router: NDArray[np.float32],
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        caches: Sequence[KvCache],
        row_cache: NDArray[np.int32],
        row_position: NDArray[np.int32],
    ) -> None:
        """x and normed (rows, width); query (rows, heads, head_dim), key and value (rows, kv_heads, head_dim);
        attended (rows, heads * head_dim); router (rows, experts); cos and sin as of `rope_table`."""

class AttentionHalf:
    """The weights of one layer's attention, which are kept alive."""

    def __init__(
        self,
        norm: NDArray[np.float32],
        query: Weights,
        key: Weights,
        value: Weights,
        query_norm: NDArray[np.float32],
        key_norm: NDArray[np.float32],
        output: Weights,
        eps: float,
    ) -> None: ...
    def attend(self, pool: Pool, layer: int, step: StepBuffers) -> None:
        """step.x += attention of step.x: `rms_norm`, three products, `rms_norm` and `rope` of the heads, `store`,
        `attention`, a product and `add_rows`, one after the other, in one call.

        NonFiniteError(row) with x as it was; other buffers, and the caches' new positions, then hold anything.
        ValueError, and nothing done, for positions that cannot be stored in `layer`.
        """

class ExpertRouter:
    """The weights of one layer's norm and router, which are kept alive, and how experts are chosen: as of `route`."""

    def __init__(
        self, norm: NDArray[np.float32], weights: Weights, eps: float, k: int, normalise: bool, scale: float
    ) -> None: ...
    def route(
        self, pool: Pool, step: StepBuffers, quantise: bool
    ) -> tuple[Rows, NDArray[np.int32], NDArray[np.float32]]:
        """What the experts take of step.x, and which: `rms_norm`, a product and `route` in one call.

        The rows are quantised, and have no fp32 values, or have them and may be quantised later. NonFiniteError(row).
        """

def exponential(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The exp of the bit path, elementwise, any shape: for sampling and tests."""

def silu(x: NDArray[np.float32]) -> NDArray[np.float32]: ...
def plan_entries(
    part: type[_Message],
    ids: NDArray[np.int32],
    weights: NDArray[np.float32],
    owner: NDArray[np.int64],
    also: NDArray[np.int64],
    runners: NDArray[np.int64],
) -> list[_Message]:
    """Entries of ids and weights (rows, k) in the order of (holder, expert, row), split by holder: a `part`
    (the class coordinator.plan.Part) for each. The holder is the owner of the expert, or who has it `also` (experts,;
    or empty), or one of their teams: `runners` (any, 4), see coordinator.placement.Placement; whoever is not among them
    does its own work only. ValueError, naming the row, for what cannot be routed."""

def distinct_rows(row: NDArray[np.int32], rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Which of `rows` rows there are in `row`, ascending, and each entry's index into them."""

def assign_slots(
    entry_row: NDArray[np.int32], row: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """For entries of the rows `row`, named by index: each entry's slot, as `run_experts` takes it; of `row` those with
    one entry; those with more."""

def first_not_held(held: NDArray[np.uint8], layer: int, expert: NDArray[np.int32]) -> int:
    """The first of a layer's experts for which `held` (layers, experts) is 0, or that it does not have; -1 if there is
    none."""

def fair_shares(total: float, entry_s: NDArray[np.float64], call_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """See coordinator.spread. ValueError without a member, and for magnitudes beyond 1e30."""

def spread(
    able: NDArray[np.uint8],
    left: NDArray[np.uint8],
    use: NDArray[np.float64],
    total: NDArray[np.float64],
    entry_s: NDArray[np.float64],
    call_s: NDArray[np.float64],
    before: NDArray[np.int64],
    first: NDArray[np.int64],
) -> NDArray[np.int64]:
    """See coordinator.spread: a member at least; `total` (layers,) is the `use` of what is `left`."""

def deal(
    order: NDArray[np.int64],
    turn: NDArray[np.int64],
    slot_bytes: NDArray[np.int64],
    room: NDArray[np.int64],
    choice: NDArray[np.int64],
    able: NDArray[np.uint8],
    evenly: bool,
) -> NDArray[np.int64]:
    """(n,): which holder takes each expert of `order` (n, 2), rows (layer, expert); -1 if none has room for it.

    The first one from `turn` (n,) on that is `able` (layers, experts, holders) and has the `room` (holders,); `evenly`:
    of those the first of whoever was given the fewest of the layer, or else has the smallest `choice` (holders,).
    """

def swapped(owner: NDArray[np.int64], before: NDArray[np.int64], able: NDArray[np.uint8]) -> NDArray[np.int64]:
    """See coordinator.swaps."""

def second_copies(
    owner: NDArray[np.int64],
    before: NDArray[np.int64],
    serials: NDArray[np.int64],
    team: NDArray[np.int64],
    room: NDArray[np.int64],
    slot_bytes: NDArray[np.int64],
    entry_s: NDArray[np.float64],
    able: NDArray[np.uint8],
    use: NDArray[np.float64],
    busy_s: NDArray[np.float64],
    first: NDArray[np.int64],
    count: int,
) -> NDArray[np.int64]:
    """(layers, experts): the serial number of who else gets an expert, -1 where nobody does; see
    coordinator.second_copies.

    `owner` and `before` (layers, experts; or empty) are serial numbers, or negative; `team` (holders,) and `room`
    (holders,) are -1 for none and for any; `able` is (layers, experts, holders), `busy_s` (layers, holders) when each
    would be done without second copies, `first` (layers,) who is preferred, and then the next one, `count` how many are
    made at most. ValueError for magnitudes beyond 1e30.
    """

def shared_out(
    ids: NDArray[np.int32], able: NDArray[np.uint8], entry_s: NDArray[np.float64], call_s: NDArray[np.float64]
) -> NDArray[np.int64]:
    """See coordinator.cost: `able` (experts, holders). ValueError for magnitudes beyond 1e30."""

def done_s(
    entries: NDArray[np.int64],
    entry_s: NDArray[np.float64],
    call_s: NDArray[np.float64],
    send_s: float,
    first_member: int,
) -> NDArray[np.float64]:
    """See coordinator.cost: holders from `first_member` on are sent their calls, the others begin after that."""

def answer_call(
    sums: type[_Message], work: object, pool: Pool, gate: Weights, up: Weights, down: Weights, wait_us: int
) -> _Message:
    """What a holder says to `work`, a RunExperts, with these experts: an instance of `sums`, that class.

    ValueError for what does not fit, NonFiniteError and EntryRangeError as of `run_experts`."""

def add_answer(
    sums: NDArray[np.int64],
    entry_row: NDArray[np.int32],
    single_row: NDArray[np.int32],
    single: NDArray[np.float32],
    sum_row: NDArray[np.int32],
    sum48: NDArray[np.uint8],
    sum64: NDArray[np.int64],
) -> None:
    """Add the answer to a call for entries of rows `entry_row` of `sums` (rows, width), in the forms of Sums.

    ValueError, and nothing added, unless just the rows with one entry come as finite `single` values in range, and
    those with more as sums that so many entries can make.
    """

def encode_run_experts(
    session: str,
    placement: int,
    step: int,
    layer: int,
    attempt: int,
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    values: NDArray[np.float32],
    row: NDArray[np.int32],
    entry_expert: NDArray[np.int32],
    entry_row: NDArray[np.int32],
    entry_weight: NDArray[np.float32],
) -> tuple[bytes, int]:
    """The first frame of a RunExperts, and how many of its arrays are large and have frames of their own.

    ValueError if the message contradicts itself, TypeError for what it cannot hold.
    """

def decode_run_experts(cls: type[_Message], frames: list[bytes | memoryview]) -> _Message:
    """A RunExperts, which `cls` is, checked; arrays are read-only views. ValueError if frames are not just one."""

def encode_sums(
    session: str,
    step: int,
    layer: int,
    attempt: int,
    single_row: NDArray[np.int32],
    single: NDArray[np.float32],
    sum_row: NDArray[np.int32],
    sum48: NDArray[np.uint8],
    sum64: NDArray[np.int64],
    busy_us: int,
    wait_us: int,
) -> tuple[bytes, int]:
    """As `encode_run_experts`, of a Sums."""

def decode_sums(cls: type[_Message], frames: list[bytes | memoryview]) -> _Message:
    """As `decode_run_experts`, of a Sums."""

def step_bounds() -> dict[str, int]:
    """The bounds of the protocol as step messages keep them, by name: a test compares them."""

class Watch:
    """Survives a mapped file that shrinks: while it lives, a SIGBUS inside `data` is answered with a zero page and
    remembered (R13)."""

    def __init__(self, data: NDArray[np.uint8], descriptor: int, path: bytes, modified_ns: int) -> None:
        """`data` is the whole file of this open descriptor, as long and as old as it was."""
    def intact(self) -> bool:
        """Whether there was no fault, and the file, and that which has its path now, if any, are as long and as old."""
    def fault(self) -> int:
        """Offset in `data` of the first fault seen, or -1."""
    def close(self) -> None: ...

class ReadResult:
    """What became of a batch of ranges."""

    failed: NDArray[np.int32]
    """Indices of the ranges that did not come whole, ascending; their destinations hold anything."""
    errors: NDArray[np.int32]
    """Of each of these its errno: 0 if the file ends before, ECANCELED if it was not read, as another had failed."""
    bytes: int
    """That the kernel gave, those around what was wanted included."""
    requests: int
    max_in_flight: int
    """Requests under way at once, at most."""
    us: int

class Reader:
    """Reads many ranges of files at once, all of a batch's requests under way together: up to `depth` in io_uring, or
    one in each of `threads` threads where the kernel does not let us, or `uring` is False.

    Any thread may call; one batch is read at a time. OSError if threads are needed and cannot be had.
    """

    kind: str
    """"io_uring" or "threads"."""
    def __init__(self, *, depth: int = 64, threads: int = 8, uring: bool = True) -> None:
        """depth 1 to 4096, threads 1 to 256."""
    def read(
        self,
        descriptors: NDArray[np.int32],
        offsets: NDArray[np.int64],
        into: Sequence[NDArray[np.uint8]],
        direct: bool,
        whole_pages: bool = False,
    ) -> ReadResult:
        """Fill each array of `into` (1-D) with the bytes from its offset in its open file; no two may overlap.

        Ranges may be empty, equal or overlap. After an error nothing more is issued, and what was issued is awaited:
        what failed with ECANCELED, or in one request with a range that cannot be read, may well be read alone.

        `direct`: the files were opened with O_DIRECT. Ranges are widened to 4096 bytes, and those of a file that touch
        then are one request of up to 8 MiB; it goes to memory of the reader's own (up to 64 MiB, kept) and is copied
        from there. No copy is made of a range whose offset, address and size are multiples of 4096. With `whole_pages`
        it is enough that offset and address are the same modulo 4096; then the rest of an array's first and last page
        of memory is written too, and must be there and belong to it alone.

        ValueError once closed. There is no deadline: the kernel writes to memory until it says that it is done.
        """
    def close(self) -> None:
        """Give up its queue or threads, and memory, after the batch in hand. May be called again."""

def merge_windows(
    descriptors: NDArray[np.int32], offsets: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """The requests of direct reads that copy: descriptors, offsets and counts, ascending (see `Reader.read`)."""

def resident(
    descriptors: NDArray[np.int32], offsets: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """1 for each range of an open file of which the page cache has all pages, (n,).

    0 where the kernel does not tell: before Linux 6.5, of no bytes, and of a file that this process neither owns nor
    may write. `mincore` is not asked then: of such a file it says that all is there.
    """

def arrived(addresses: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.uint8]:
    """1 for each of these parts of files' mappings, of 1 byte or more, of which all pages have been read, (n,).

    The page cache has a page (`resident`) as soon as its read is queued. 1 too of a file that this process neither owns
    nor may write: there the kernel does not tell.
    """

def will_need(addresses: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
    """Ask for these parts of files' mappings, which must stay mapped meanwhile, to be read in.

    Returns when the reads are queued, at the latest; waits for room in the disk's queue. In steps, since one request
    reads no more than one read-ahead window.
    """

def populate(addresses: NDArray[np.uint64], counts: NDArray[np.int64], threads: int) -> int:
    """`will_need` of all these parts, and then map all their pages in `threads` threads, this one included.

    Returns the microseconds this took. What cannot be read, such as pages of a file that was truncated, is left out
    without a signal or an error: whoever reads it finds out.
    """

def die_with_parent(expected_parent: int) -> bool:
    """Ask the kernel for SIGKILL when the parent dies; False if `expected_parent` is not the parent any more."""
