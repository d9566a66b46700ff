"""Before anything is started: do this machine and all others have what it takes? All problems are found at once."""

from __future__ import annotations

import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.config import ClusterConfig
from coordinator.dialling import address_of, seen_from_elsewhere
from coordinator.host_check import look_around
from coordinator.host_report import Asked, Expected, HostReport, problems
from coordinator.hosts import Host

CHECK_S = 60.0
"""Time for all machines to connect, open their models and answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found."""

    problems: tuple[str, ...]
    """One line for each thing that is wrong on any machine."""
    tunnelled: tuple[Host, ...]
    """Machines that cannot dial the coordinator's loopback interface themselves."""


def look_at_all(config: ClusterConfig, taken: Collection[str] = ()) -> Looked:
    """Asks all machines of `config` at once, and looks at this one: `taken` are endpoints that cannot be had here."""
    free = [endpoint for endpoint in config.endpoints if endpoint not in taken] if config.remote else []
    with _announced(free) as (word, heard, refused):
        asked = list(_asked(config))
        dialled = [seen_from_elsewhere(endpoint, config.launch.address) for endpoint in heard]
        reports = dict(zip(asked, _ask_all(config, asked, dialled), strict=True))
    groups = [group for group in config.workers if group.host is None and group.count]
    here = Asked.of(None, (), [*groups, *(peer for peer in config.peers if peer.host is None)], config.model)
    own = look_around({config.model, *here.models}, (), here.caches)
    expected = Expected(
        version=own["version"], protocol=own["protocol"], model=own["models"][str(config.model)], word=word
    )
    found = [*refused, *expected.local_problems(config.model, own, here)]
    found += [line for one, report in reports.items() for line in problems(one, report, expected)]
    lost = dict.fromkeys(one.host for one, report in reports.items() if one.host and not report.hears(word))
    return Looked(problems=tuple(found), tunnelled=tuple(lost))


def _asked(config: ClusterConfig) -> dict[Asked, None]:
    """What to ask, once for each machine and command there."""
    parts: dict[tuple[Host, tuple[str, ...]], list[Any]] = {}
    for part in config.remote:
        assert part.host is not None
        parts.setdefault((part.host, part.command), []).append(part)
    return {Asked.of(host, command, found, config.model): None for (host, command), found in parts.items()}


def _ask_all(config: ClusterConfig, asked: Sequence[Asked], endpoints: Sequence[str]) -> list[HostReport]:
    deadline = time.monotonic() + CHECK_S
    with ExitStack() as stack:
        running = [stack.enter_context(_asking(one, config.launch.ssh_config, endpoints)) for one in asked]
        return [_answer(process, deadline - time.monotonic()) for process in running]


@contextmanager
def _asking(asked: Asked, settings: Path | None, endpoints: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    words = [*asked.command, "hosted", "check"]
    words += [f"--model={model}" for model in asked.models] + [f"--dial={endpoint}" for endpoint in endpoints]
    words += [f"--cache={folder}" for folder in asked.caches]
    words += [f"--listen={one.give}" for one in asked.wanted if one.give]
    assert asked.host is not None
    process = subprocess.Popen(
        asked.host.running(words, settings=settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _answer(process: subprocess.Popen[bytes], within_s: float) -> HostReport:
    try:
        output, errors = process.communicate(timeout=max(0.0, within_s))
    except subprocess.TimeoutExpired:
        return HostReport(silent_s=CHECK_S)
    return HostReport(code=process.returncode, output=_text(output), errors=_text(errors))


def _text(said: bytes) -> str:
    return said[:100_000].decode("utf-8", "replace")


@contextmanager
def _announced(endpoints: Sequence[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Within the block whoever dials one of the tcp endpoints hears a word that nobody else has.

    It, the endpoints of which that is true, and why it is not of the others.
    """
    word = secrets.token_hex(16)
    heard: list[str] = []
    refused: list[str] = []
    with ExitStack() as stack:
        for endpoint in endpoints:
            host, port = address_of(endpoint)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                server = socket.create_server((host, port), family=family, backlog=64)
            except OSError as error:
                refused.append(f"cannot listen at {endpoint}: {error.strerror}")
                continue
            heard.append(endpoint)
            stack.enter_context(server)
            thread = threading.Thread(target=_tell_all, args=(server, word), name="preflight", daemon=True)
            thread.start()
            stack.callback(_end, server, thread)
        yield word, heard, refused


def _tell_all(server: socket.socket, word: str) -> None:
    while True:
        try:
            connection, _ = server.accept()
            with connection:
                connection.sendall(word.encode())
        except ConnectionError:
            continue
        except OSError:
            return  # it was shut down


def _end(server: socket.socket, thread: threading.Thread) -> None:
    server.shutdown(socket.SHUT_RDWR)  # wakes accept, which closing alone does not
    thread.join(5.0)
