"""What a Hello must agree with before its sender gets any work, and what it is told in return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.messages import MAX_ENTRY_NS, MAX_THREADS, PROTOCOL, Hello

MAX_NAME = 64
"""Characters of a name, of a process, a host or a request: it appears in tables, logs and reports."""

HOLDERS = ("worker", "peer")
"""Who holds experts; both are treated alike."""
ROLES = (*HOLDERS, "lookahead", "client")
"""Who may say Hello."""

_FEWEST = {"name": 1, "incarnation": 1, "host": 0, "isa": 0, "pages": 0}
"""Texts of a Hello that are kept, and how many characters each has at least."""

_OF_WHAT = "the coordinator's model, with the same files under the same names"
"""What it takes for fingerprints to be equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What every worker and client of one coordinator has to accept."""

    session: str
    """This life of the coordinator: fresh random hex."""
    fingerprint: str
    """Of the model file."""
    geometry: Mapping[str, int]
    """`protocol.geometry.Geometry.handshake`."""
    work: str
    """Endpoint of the work connection."""
    inputs: str = ""
    """Endpoint where layer inputs are published."""
    beat_s: float = 0.5
    """Interval at which workers must show that they live."""
    missed_beats: int = 6
    """Beats that may be missing before a worker is given up."""

    @property
    def silence_limit_s(self) -> float:
        """How long a worker may be silent before it is given up."""
        return self.beat_s * self.missed_beats

    @property
    def name_claim_s(self) -> float:
        """How long the holder of a name may take to show that it lives when another worker claims the name."""
        return self.beat_s * 1.5


def is_name(text: str, fewest: int = 1) -> bool:
    """Whether it can be shown as it is, and repeated for hundreds of members."""
    return fewest <= len(text) <= MAX_NAME and text.isprintable()


def where(hello: Hello) -> str:
    """Which process says this Hello, for people."""
    return f"pid {hello.pid} on {hello.host}"


def mismatches(hello: Hello, terms: Terms) -> list[list[str]]:
    """Every reason to refuse this Hello, as (field, found, expected).

    A client that leaves fingerprint and geometry empty makes no claim about the model, so there is nothing to check.
    """
    if hello.protocol != PROTOCOL:  # another protocol's fields may mean anything
        return [["protocol", str(hello.protocol), str(PROTOCOL)]]
    wrong = []
    if hello.role not in ROLES:
        wrong.append(["role", hello.role[:MAX_NAME], "worker, peer, lookahead or client"])
    for field, fewest in _FEWEST.items():
        text = getattr(hello, field)
        if not is_name(text, fewest):
            wrong.append([field, repr(text[: MAX_NAME + 1]), f"{fewest} to {MAX_NAME} printable characters"])
    if not 0 <= hello.threads <= MAX_THREADS:
        wrong.append(["threads", str(hello.threads), f"0 to {MAX_THREADS}"])
    if not 0 <= hello.entry_ns <= MAX_ENTRY_NS:
        wrong.append(["entry_ns", str(hello.entry_ns), f"0 to {MAX_ENTRY_NS}"])
    for field, size in (("room", hello.room), ("memory", hello.memory)):
        if size < -1:
            wrong.append([field, str(size), "-1 or more"])
    shape = tuple(terms.geometry.get(field, 0) for field in ("layers", "experts"))
    for field, table in (("able", hello.able), ("held", hello.held)):
        if table.shape not in ((0, 0), shape):
            wrong.append([field, f"for {table.shape} layers and experts", f"{shape}, or (0, 0)"])
    makes_no_claim = hello.role == "client" and not hello.fingerprint and not hello.geometry
    return wrong if makes_no_claim else wrong + _model_mismatches(hello, terms)


def _model_mismatches(hello: Hello, terms: Terms) -> list[list[str]]:
    wrong = []
    if hello.fingerprint != terms.fingerprint:
        wrong.append(["fingerprint", hello.fingerprint[:MAX_NAME] or "nothing", f"{terms.fingerprint}: {_OF_WHAT}"])
    if unknown := len(hello.geometry.keys() - terms.geometry.keys()):
        wrong.append(["geometry", f"{unknown} unknown numbers", "none"])
    for field, expected in terms.geometry.items():
        found = hello.geometry.get(field)
        if found != expected:
            wrong.append([f"geometry.{field}", "nothing" if found is None else str(found), str(expected)])
    return wrong
