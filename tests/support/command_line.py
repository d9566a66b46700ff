"""The `expertmesh` command as a process, and what a marked one of them leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-P", "-m", "coordinator.cli"]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, in which the tree's packages are found."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **(extra or {})}


def start(*arguments: object, **settings: Any) -> subprocess.Popen[str]:
    """Start the command; settings are those of Popen, `env` being added to this environment."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **settings}
    settings["env"] = environment(settings.get("env"))
    return subprocess.Popen([*COMMAND, *map(str, arguments)], text=True, encoding="utf-8", **settings)


def run(*arguments: object, timeout: float = 60.0, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    process = start(*arguments, **settings)
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    """Look again and again; whether it came true in time."""
    deadline = time.monotonic() + within_s
    tick = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        tick.wait(0.02)
    return True


def processes_of(marker: str, module: str = "") -> list[psutil.Process]:
    """Running processes whose command line has the marker in it, and is that of the module, if one is named.

    Zombies, which no one reaps here, run no more. Any of them may end at any moment: what is asked of it then fails.
    """
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(marker in part for part in process.info["cmdline"] or ())
        and (not module or module in process.info["cmdline"])
    ]


def abstract_sockets(marker: str) -> list[str]:
    """Lines of /proc/net/unix that name the marker."""
    return [line for line in Path("/proc/net/unix").read_text().splitlines() if marker in line]
