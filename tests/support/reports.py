"""What a coordinator reports, made by hand: as much of Status.report as is shown to people."""

from __future__ import annotations

from typing import Any

from protocol.expert_sources import TIER_COUNTS

NO_INPUTS = {"published": 0, "refused": 0, "us": 0}


def worker_row(name: str, **changes: Any) -> dict[str, Any]:
    """A worker that is ready and has beaten; `calls` and `busy_s` are by its own account, too."""
    row = {
        "name": name,
        "role": "worker",
        "pid": 7,
        "host": "box",
        "isa": "avx2",
        "threads": 2,
        "state": "ready",
        "experts": 3,
        "calls": 4,
        "entries": 5,
        "busy_s": 0.5,
        "wait_s": 0.25,
        "beat_age_s": 0.1,
        "resident_bytes": 2**21,
        "dropped": 0,
        "source": "mapped",
        "tiers": tiers(),
        "placement": 2,
        "progress": [6, 6],
        "pace": {"entry_us": 100.0, "call_us": 250.0},
        "last_us": 1000,
        "sign": "idle",
        **changes,
    }
    return {"since_start": {"calls": row["calls"], "busy_s": row["busy_s"]}, **row}


def tiers(**counts: int) -> dict[str, int]:
    """All of an expert worker's counters."""
    assert counts.keys() <= set(TIER_COUNTS)
    return dict.fromkeys(TIER_COUNTS, 0) | counts


def cluster_report(*workers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Of a coordinator on a processor, with nothing to do."""
    return {
        "state": "ready",
        "model": "m.gguf",
        "isa": "avx2",
        "threads": 1,
        "device": "cpu",
        "step": 1,
        "requests": 0,
        "reading": [],
        "inputs": NO_INPUTS,
        "drafts": {"steps": 0, "drafted": 0, "accepted": 0},
        "profile": None,
        "placement": 2,
        "outlook": None,
        "device_experts": 0,
        "local_entries": 0,
        "device_entries": 0,
        "replans": 0,
        "hedges": 0,
        "late_replies": 0,
        "dropped": 0,
        "canaries": 0,
        "audits": 0,
        "workers": list(workers),
        "lookahead": [],
        **changes,
    }
