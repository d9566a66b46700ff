"""A cluster that `expertmesh up` keeps running, the lines that it prints, and what it answers."""

from __future__ import annotations

import json
import queue
import re
import secrets
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import abstract_sockets, processes_of, run, start, wait_until

CONFIGS = Path(__file__).parents[2] / "configs"


def private_copy(name: str, folder: Path) -> tuple[Path, str]:
    """The file with an endpoint that no other cluster on this machine has; it and the endpoint."""
    endpoint = f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
    text = (CONFIGS / name).read_text().replace('"demo-moe', f'"{CONFIGS}/demo-moe')
    changed, count = re.subn(r'listen = "[^"]*"', f'listen = "{endpoint}"', text)
    assert count == 1
    copy = folder / name
    copy.write_text(changed)
    return copy, endpoint


class Up:
    """A running `expertmesh up`, and the lines it prints."""

    def __init__(self, config: Path, *options: object) -> None:
        self.process = start("up", config, *options, stderr=subprocess.STDOUT)
        self.seen: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line in which the pattern is found."""
        while True:
            try:
                self.seen.append(self._lines.get(timeout=30))
            except queue.Empty:
                raise AssertionError(f"no line has {pattern!r}:\n{''.join(self.seen)}") from None
            if match := re.search(pattern, self.seen[-1]):
                return match


@contextmanager
def up(config: Path, endpoint: str, *options: object) -> Iterator[Up]:
    """A cluster that is up; nothing of it may be left at the end."""
    cluster = Up(config, *options)
    try:
        yield cluster
    finally:
        cluster.process.kill()
        cluster.process.wait()
        assert wait_until(lambda: not processes_of(endpoint) and not abstract_sockets(endpoint[6:]), 10.0)


def ask(config: Path) -> dict[str, Any]:
    done = run("generate", "--config", config, "--json", "--max-tokens", 8, "In the beginning God created")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report
