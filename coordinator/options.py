"""The options of the coordinator's process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from coordinator.config import DEVICES, MAX_ALL_WORKERS, MAX_REPLICAS, PLACED_BY, is_device
from coordinator.drafts import MAX_DRAFTS
from coordinator.halves import When
from coordinator.kv import KV_TYPES
from protocol.arguments import number
from protocol.gib import gib_argument
from protocol.messages import MAX_BEAT_S, MAX_ROWS, MAX_THREADS, MIN_BEAT_S

RESUME_S = 2.0
"""How long one that takes another's place waits for all that were there: they beat twice a second, then say Hello."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was typed, or `arguments`; ends the process if that is wrong."""
    parser = argparse.ArgumentParser(prog="coordinator", description="Own the conversations.", allow_abbrev=False)
    add = parser.add_argument
    add("--model", type=Path, required=True, help="the GGUF model: a file, one of its files, or their folder")
    add("--listen", required=True, help="control endpoint; work and inputs take the next, or -work, -inputs")
    workers = number(int, 0, MAX_ALL_WORKERS)
    add("--workers", type=workers, default=0, help="how many to wait for before the first step")
    add("--threads", type=number(int, 1, MAX_THREADS), default=1)
    add("--kv", choices=KV_TYPES, default="f16", help="type of cached keys and values")
    add("--device", type=_device, default="cpu", help="where the dense half is computed: cpu or cuda:N")
    add(
        "--vram-gib",
        type=gib_argument,
        metavar="GIB",
        help="experts in that device's memory: auto (default) or a number",
    )
    add("--chunk", type=number(int, 1, MAX_ROWS), default=512, help="rows of one step at most")
    add("--drafts", type=number(int, 0, MAX_DRAFTS), default=0, help="guesses of one step for a request at most")
    add("--halves", choices=get_args(When), default="auto", help="when a step is computed in two halves")
    add("--profile", type=Path, metavar="FILE", help="count which experts are used, and place them by that")
    add("--audit", type=number(float, 0, 1), default=0.0, metavar="RATE", help="share of answers to compute again")
    add("--canaries", type=int, choices=(0, 1), default=1, help="whether members are tried before they get work")
    add("--keys", type=Path, metavar="FOLDER", help="folder of keys: its own, and who may come in")
    add("--placement", choices=PLACED_BY, default="measured", help="by measured pace, or evenly")
    add("--replicas", type=number(float, 1, MAX_REPLICAS), default=1.0, help="copies of experts for each of them")
    add("--parent", type=int, help="process that this one must not outlive")
    add("--ready-within", type=number(float, 0, 1e6), default=60.0, metavar="S", help="time for the workers to join")
    resume = number(float, 0, 1e6)
    add(
        "--resume",
        type=resume,
        nargs="?",
        const=RESUME_S,
        metavar="S",
        help="take the place of one that died: go on after S seconds, 2 by default, with those who have come",
    )
    add("--call-floor-ms", type=number(int, 1, 10**6), default=1000, help="no call's deadline is shorter")
    add("--hedge-floor-ms", type=number(int, 1, 10**6), default=50, help="no call is hedged before that")
    add("--no-local-experts", action="store_true", help="compute no experts here, and fail for those that nobody holds")
    add("--beat-s", type=number(float, MIN_BEAT_S, MAX_BEAT_S), default=0.5, help="interval of the workers' beats")
    add("--log", choices=("debug", "info", "warning", "error"), default="info", help="what to log")
    return parser.parse_args(arguments)


def _device(text: str) -> str:
    if not is_device(text):
        raise argparse.ArgumentTypeError(f"{text} found, {DEVICES} expected")
    return text
