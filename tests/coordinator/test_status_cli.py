"""`expertmesh status` against coordinators that follow a script: what it prints, and what it says of silence."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import start
from reports import cluster_report, worker_row
from scripted_coordinator import Coordinator, Script, welcome

from coordinator.cli import run
from coordinator.demo import demo_model
from protocol.messages import AskStatus, Hello, Message, Refused, SayHello, Status

pytestmark = pytest.mark.timeout(60)

REPORT: dict[str, Any] = {**cluster_report(worker_row("box-0"), model="m.gguf"), "yours": []}


def telling(report: dict[str, Any], times: int = 1_000_000) -> Script:
    """Welcomes everybody, and answers so many questions."""
    left = iter(range(times))

    def script(message: Message) -> Sequence[Message]:
        if isinstance(message, Hello):
            return [welcome()]
        asks = isinstance(message, AskStatus)
        return [Status(report=report)] if asks and next(left, None) is not None else []

    return script


@contextmanager
def endpoint_of(script: Script) -> Iterator[str]:
    coordinator = Coordinator(script)
    with coordinator.serving():
        yield coordinator.endpoint


def test_a_page_and_its_json(capfd: pytest.CaptureFixture[str]) -> None:
    with endpoint_of(telling(REPORT)) as endpoint:
        assert run(["status", endpoint]) == 0
        text, errors = capfd.readouterr()
        assert text.startswith(f"m.gguf at {endpoint}\nready, placement 2, step 1, requests 0\n")
        assert "\nbox-0   mapped " in text
        assert "\x1b" not in text, "plain text where there is no terminal"
        assert errors == ""
        assert run(["status", "--json", endpoint]) == 0
        text, errors = capfd.readouterr()
        assert (json.loads(text), text.count("\n"), errors) == (REPORT, 1, "")


def test_a_cluster_file_says_where_to_ask(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with endpoint_of(telling(REPORT)) as endpoint:
        config = tmp_path / "a.toml"
        config.write_text(f'[model]\npath = "{demo_model()}"\n[coordinator]\nlisten = "{endpoint}"\n')
        assert run(["status", "--config", str(config)]) == 0
        assert capfd.readouterr().out.startswith(f"m.gguf at {endpoint}\n")


def test_watching_tells_a_line_for_each_report_until_it_is_interrupted() -> None:
    with endpoint_of(telling(REPORT)) as endpoint:
        process = start("status", "--watch", "--json", endpoint)
        try:
            assert process.stdout is not None
            assert [json.loads(process.stdout.readline()) for _ in range(2)] == [REPORT, REPORT]
            process.terminate()
            _, errors = process.communicate(timeout=20)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()


def test_watching_a_coordinator_that_falls_silent_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with endpoint_of(telling(REPORT, times=2)) as endpoint:
        assert run(["status", "--watch", "--json", "--within-s", "3", endpoint]) == 2
    output, errors = capfd.readouterr()
    assert output.count("\n") == 2
    assert errors == f"error: the coordinator at {endpoint} has said nothing for 3 s\n"


def failing(script: Script, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What is said, and the endpoint."""
    with endpoint_of(script) as endpoint:
        assert run(["status", "--within-s", "1", endpoint]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    return errors, endpoint


def test_something_that_listens_and_does_not_greet(capfd: pytest.CaptureFixture[str]) -> None:
    """A coordinator's work endpoint drops what it is not asked for; on a worker nothing listens at all."""
    errors, endpoint = failing(lambda message: [], capfd)
    assert errors == (
        f"error: no coordinator answers at {endpoint} within 1 s: it is busy with one layer or stopped, or this is "
        "not its control endpoint\n"
    )


def test_something_that_is_no_coordinator(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hangs_up = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(2)], daemon=True)
        hangs_up.start()
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert run(["status", "--within-s", "1", endpoint]) == 2
        hangs_up.join(10)
    assert capfd.readouterr().err.startswith(f"error: no coordinator answers at {endpoint} within 1 s: ")


def test_one_that_greets_and_tells_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    errors, endpoint = failing(telling(REPORT, times=0), capfd)
    assert errors == f"error: the coordinator at {endpoint} does not tell its state within 1 s\n"


def test_one_of_another_version(capfd: pytest.CaptureFixture[str]) -> None:
    errors, endpoint = failing(lambda message: [Refused(mismatches=[["protocol", "6", "7"]])], capfd)
    assert errors == f"error: the coordinator at {endpoint} refused: protocol is 6, expected 7\n"


def test_one_that_wants_a_greeting_again_and_again(capfd: pytest.CaptureFixture[str]) -> None:
    errors, endpoint = failing(lambda message: [SayHello()], capfd)
    assert errors.startswith(f"error: no coordinator answers at {endpoint} within 1 s: ")


def test_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    for endpoint in (f"ipc://@expertmesh-test-{secrets.token_hex(8)}", "tcp://127.0.0.1:1"):
        assert run(["status", endpoint]) == 2
        assert capfd.readouterr() == ("", f"error: nothing listens at {endpoint}: is this cluster up?\n")
