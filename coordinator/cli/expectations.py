"""What a token is expected to take and what limits it, in sentences, from a coordinator's report or before one runs."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.cli.wording import percent

PARTS = {
    "dense": "the coordinator's own half of the layers",
    "sending": "handing over calls one after another",
    "calls": "what calls take beside the kernels: the network, waking up, checking",
    "kernels": "the kernels of whoever is the last one in a layer",
}


def of_token(token_us: float, limits_us: Mapping[str, float]) -> list[str]:
    """How long a token takes, and what of it, the largest part first."""
    parts = sorted(((us, what) for what, us in limits_us.items() if us > 0), reverse=True)
    lines = [f"a token is expected to take {milliseconds(token_us)}, {1e6 / token_us:.3g} tokens a second"]
    lines += [f"  {percent(us / token_us)} {PARTS[what]}" for us, what in parts]
    return lines if parts else [lines[0]]


def milliseconds(us: float) -> str:
    """In three digits."""
    return f"{us / 1000:.3g} ms"
