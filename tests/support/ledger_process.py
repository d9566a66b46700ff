"""A process that plans, promises and takes memory as it is told; run as a script with arguments of its own.

ledger_process.py take FOLDER ROOT WANTED    promises what it can of WANTED bytes, touches that, says how many, and
                                             withdraws the promise when its input ends
ledger_process.py hold FOLDER ROOT           holds the lock until its input ends
ledger_process.py churn FOLDER ROOT ROUNDS   promises all that is left, again and again; says the most it saw promised
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from pathlib import Path

from protocol.host_ledger import planning


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def take(folder: Path, root: Path, wanted: int, headroom: int) -> None:
    say("ready")
    sys.stdin.readline()
    with planning(deadline_s=60, folder=folder, root=root) as ledger:
        count = max(0, min(wanted, ledger.available - headroom)) // mmap.PAGESIZE * mmap.PAGESIZE
        pledge = ledger.promise(count)
    with pledge, mmap.mmap(-1, max(count, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for start in range(0, count, 1 << 20):
            part = min(1 << 20, count - start)
            memory[start : start + part] = b"\1" * part
            if root == Path("/"):  # elsewhere what is touched shows in no reading
                pledge.touched(start + part)
        say(count)
        sys.stdin.read()


def hold(folder: Path, root: Path) -> None:
    with planning(deadline_s=60, folder=folder, root=root):
        say("held")
        sys.stdin.read()


def churn(folder: Path, root: Path, rounds: int) -> None:
    most = 0
    for _ in range(rounds):
        with planning(deadline_s=60, folder=folder, root=root) as ledger:
            pledge = ledger.promise(ledger.available // 2)
            most = max(most, ledger.promised)
        pledge.withdraw()
    say(most)


if __name__ == "__main__":
    kind, folder, root, *numbers = sys.argv[1:]
    known: dict[str, Callable[..., None]] = {"take": take, "hold": hold, "churn": churn}
    known[kind](Path(folder), Path(root), *map(int, numbers))
