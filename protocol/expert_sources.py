"""What a worker may be told about where its experts' bytes come from; docs/tiers.md says when to choose which."""

from __future__ import annotations

SOURCES = ("auto", "mapped", "copies", "arena", "shared", "direct")
"""In a cluster file and on the command line."""
