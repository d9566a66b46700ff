"""Before anything is started: do the other machines have what it takes? All problems are found at once."""

from __future__ import annotations

import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from coordinator.config import ClusterConfig, work_endpoint
from coordinator.dialling import address_of, seen_from_elsewhere
from coordinator.host_check import look_around
from coordinator.host_report import Asked, Expected, HostReport, problems
from coordinator.hosts import Host
from protocol.errors import ConfigError

CHECK_S = 60.0
"""Time for all machines to connect, open their models and answer."""


def checked_hosts(config: ClusterConfig) -> tuple[Host, ...]:
    """Those machines that need a tunnel, since they cannot dial the coordinator's loopback interface themselves.

    Asks all machines of `config` at once. ConfigError with one line for each thing that is wrong on any, or with the
    local copies of the model.
    """
    if not config.remote:
        return ()
    listen = config.coordinator.listen
    endpoints = (listen, work_endpoint(listen))
    with _announced(endpoints) as word:
        asked = _asked(config)
        dialled = [seen_from_elsewhere(endpoint, config.launch.address) for endpoint in endpoints]
        reports = dict(zip(asked, _ask_all(config, list(asked), dialled), strict=True))
    here = {
        group.model_path or config.model
        for group in config.workers
        if group.host is None and group.count and group.cache is None
    }
    own = look_around({config.model, *here}, ())
    expected = Expected(
        version=own["version"], protocol=own["protocol"], model=own["models"][str(config.model)], word=word
    )
    found = list(expected.local_problems(config.model, own["models"]))
    if not found:
        found = [line for one, report in reports.items() for line in problems(one, report, expected)]
    if found:
        raise ConfigError("\n".join(dict.fromkeys(found)))
    return tuple(dict.fromkeys(one.host for one, report in reports.items() if not report.hears(word)))


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
    words += [f"--listen={one.give}" for one in asked.wanted if one.give]
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
def _announced(endpoints: Sequence[str]) -> Iterator[str]:
    """Within the block whoever dials one of the tcp endpoints hears a word that nobody else has."""
    word = secrets.token_hex(16)
    with ExitStack() as stack:
        for endpoint in endpoints:
            host, port = address_of(endpoint)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                server = socket.create_server((host, port), family=family, backlog=64)
            except OSError as error:
                raise ConfigError(f"cannot listen at {endpoint}: {error.strerror}") from None
            stack.enter_context(server)
            thread = threading.Thread(target=_tell_all, args=(server, word), name="preflight", daemon=True)
            thread.start()
            stack.callback(_end, server, thread)
        yield word


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
