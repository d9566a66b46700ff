"""What a worker may be told about where its experts' bytes come from; docs/tiers.md says when to choose which."""

from __future__ import annotations

SOURCES = ("auto", "mapped", "copies", "arena", "shared", "direct")
"""In a cluster file and on the command line."""
BUDGETED_SOURCES = ("auto", "copies", "direct")
"""Those that can be told how much memory to take; an arena has all or nothing, and pages are the kernel's."""

BEAT_SOURCES = (*SOURCES[1:], "vram", "none")
"""What a beat may say: also of a peer, and of a lookahead process."""

TIER_COUNTS = (
    *(
        "copy_hits",
        "cache_hits",
        "file_reads",
        "file_read_bytes",
        "file_read_us",
        "fallbacks",
        "loaded_bytes",
        "load_us",
    ),
    *("copied_experts", "copied_bytes", "locked_bytes", "shed_bytes"),
    *("fetched_bytes", "fetched_from_caches", "fetch_us", "fetch_left_bytes", "fetched_damaged"),
    *(
        "hints_hinted",
        "hints_useful",
        "hints_late",
        "hints_wasted",
        "hints_harmful",
        "hints_stale",
        "hints_gated",
        "hints_following",
    ),
    *("hints_missed", "hints_closed", "hints_off", "hints_late_us"),
)
"""What a beat counts under `tiers`: `expert_worker.sources.source.Counters`, `expert_worker.supply.Supply.counts`, and
with `hints_` before each name `expert_worker.hints.HintBook.stats`. A report passes on no others."""
