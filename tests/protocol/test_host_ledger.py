"""Processes that start together never plan with the same bytes, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import ledger_process
import pytest
from fake_machine import GIB, FakeMachine, second_group

from protocol import host_ledger
from protocol.host_ledger import FOREIGN_AFTER_S, Ledger, ledger_path, planning
from protocol.promises import LedgerError, Promise, decode, encode

MIB = 1 << 20
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of the ledger; empty when all have left."""
    (tmp_path / "shm").mkdir()
    yield tmp_path / "shm"
    assert list((tmp_path / "shm").iterdir()) == []


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path / "machine")


@pytest.fixture
def start(folder: Path, machine: FakeMachine) -> Iterator[Start]:
    """Starts a process of `ledger_process.py`."""
    with ExitStack() as running:

        def start(kind: str, *numbers: int, root: Path = machine.root) -> subprocess.Popen[str]:
            command = [sys.executable, "-P", ledger_process.__file__, kind, str(folder), str(root)]
            child = subprocess.Popen(
                [*command, *map(str, numbers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            running.callback(child.__exit__, None, None, None)
            running.callback(child.kill)
            return child

        yield start


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def end(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(timeout=30) == 0


def plan(folder: Path, machine: FakeMachine) -> Ledger:
    with planning(deadline_s=10, folder=folder, root=machine.root) as ledger:
        return ledger


def test_a_promise_counts_until_its_pages_are_touched(folder: Path, machine: FakeMachine) -> None:
    with planning(deadline_s=10, folder=folder, root=machine.root) as ledger:
        assert ledger.available == ledger.memory.available == 48 * GIB
        pledge = ledger.promise(10 * GIB)
    with pledge:
        assert plan(folder, machine).available == 38 * GIB
        pledge.touched(4 * GIB)
        assert plan(folder, machine).available == 42 * GIB
        pledge.touched(4 * GIB + 1)  # too little to be written
        assert plan(folder, machine).promised == 6 * GIB
        pledge.touched(10 * GIB)
        assert plan(folder, machine).available == 48 * GIB
    assert plan(folder, machine).promised == 0
    pledge.withdraw()
    pledge.touched(10 * GIB)


def test_promises_count_in_the_groups_around_their_process(folder: Path, machine: FakeMachine) -> None:
    top = machine.second("/a")
    second_group(top / "a", 20 * GIB, GIB)
    second_group(top / "b", 30 * GIB)
    with planning(deadline_s=10, folder=folder, root=machine.root) as ledger:
        assert ledger.available == 19 * GIB
        pledge = ledger.promise(15 * GIB)
    with pledge:
        assert plan(folder, machine).available == 4 * GIB
        machine.second("/b")  # as a process of another group sees it
        assert plan(folder, machine).available == 30 * GIB
        machine.memory(64 * GIB, 16 * GIB)
        assert plan(folder, machine).available == GIB


def test_no_promise_leaves_no_file(folder: Path, machine: FakeMachine) -> None:
    with planning(deadline_s=10, folder=folder, root=machine.root) as ledger:
        assert ledger_path(folder).stat().st_mode & 0o777 == 0o600
        assert ledger.promise(0).withdraw() is None
    assert not ledger_path(folder).exists()


def test_an_error_within_the_block_releases_the_lock(folder: Path, machine: FakeMachine) -> None:
    with pytest.raises(ZeroDivisionError), planning(deadline_s=10, folder=folder, root=machine.root):
        raise ZeroDivisionError
    assert plan(folder, machine).available == 48 * GIB


@pytest.mark.timeout(120)
def test_four_that_start_at_once_share_room_for_one_and_a_half(start: Start, machine: FakeMachine) -> None:
    machine.memory(64 * GIB, 96 * MIB)
    children = [start("take", 64 * MIB, 0) for _ in range(4)]
    assert [line(child) for child in children] == ["ready"] * 4
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    assert sorted(int(line(child)) for child in children) == [0, 0, 32 * MIB, 64 * MIB]
    for child in children:
        end(child)


@pytest.mark.timeout(120)
def test_many_that_come_and_go_never_promise_more_than_there_is(
    start: Start, machine: FakeMachine, folder: Path
) -> None:
    children = [start("churn", 100) for _ in range(4)]
    assert all(0 <= int(line(child)) < 48 * GIB for child in children)
    for child in children:
        end(child)
    assert not ledger_path(folder).exists()


@pytest.mark.timeout(60)
def test_the_promise_of_a_killed_process_is_dropped(start: Start, machine: FakeMachine, folder: Path) -> None:
    child = start("take", 64 * MIB, 0)
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    assert line(child) == "ready"
    assert line(child) == str(64 * MIB)
    assert plan(folder, machine).promised == 64 * MIB
    child.kill()
    child.wait(timeout=30)
    assert ledger_path(folder).exists()
    assert plan(folder, machine).promised == 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("stopped", [False, True])
def test_a_lock_that_is_not_released_is_an_error_after_a_while(
    start: Start, machine: FakeMachine, folder: Path, stopped: bool
) -> None:
    child = start("hold")
    assert line(child) == "held"
    if stopped:
        child.send_signal(signal.SIGSTOP)
    with pytest.raises(LedgerError, match=rf"another process has held {folder}/\S+ for 0.05 s: is it stopped"):
        planning(deadline_s=0.05, folder=folder, root=machine.root).__enter__()
    child.kill()
    assert plan(folder, machine).available == 48 * GIB


@pytest.mark.timeout(60)
def test_loading_does_not_wait_for_the_lock(start: Start, machine: FakeMachine, folder: Path) -> None:
    with planning(deadline_s=10, folder=folder, root=machine.root) as ledger:
        pledge = ledger.promise(10 * GIB)
    child = start("hold")
    assert line(child) == "held"
    pledge.touched(4 * GIB)
    end(child)
    assert plan(folder, machine).promised == 10 * GIB
    pledge.touched(4 * GIB)
    assert plan(folder, machine).promised == 6 * GIB
    pledge.withdraw()


@pytest.mark.parametrize("text", [b"\0" * 100, b"{", b"x" * 100_000])
def test_a_damaged_ledger_is_replaced_and_that_is_said(folder: Path, machine: FakeMachine, text: bytes) -> None:
    path = ledger_path(folder)
    path.write_bytes(text)
    with planning(deadline_s=10, folder=folder, root=machine.root) as ledger:
        assert ledger.note.startswith(f"{path} was damaged (it has no line of 65536 bytes at most) and is begun anew")
        pledge = ledger.promise(GIB)
        assert len(decode(path.read_bytes())) == 1
    with pledge:
        assert plan(folder, machine).note == ""


def foreign(path: Path) -> None:
    path.touch()
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(
            foreign,
            r"no file of this user's \(number 0\); it is of user number 65534",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away"),
        ),
        (lambda path: path.symlink_to("/etc/passwd"), "cannot be opened: Too many levels of symbolic links; it is of"),
        (lambda path: path.mkdir(), "cannot be opened: Is a directory; it is of user number"),
        (os.mkfifo, "is no file of this user's"),
    ],
)
def test_what_is_no_file_of_ours_is_left_alone(
    tmp_path: Path, machine: FakeMachine, make: Callable[[Path], None], reason: str
) -> None:
    path = ledger_path(tmp_path)
    make(path)
    before = path.lstat()
    with pytest.raises(LedgerError, match=f"^the ledger of memory {path} .*{reason}"):
        plan(tmp_path, machine)
    assert path.lstat() == before


def test_no_folder_for_it(machine: FakeMachine, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger of memory can be written"):
        plan(tmp_path / "missing", machine)


@pytest.mark.parametrize(
    ("age_s", "space", "counts"),
    [(0, 1, True), (FOREIGN_AFTER_S + 5, 1, False), (-1000, 1, False), (0, None, False)],
    ids=["of another container", "of another container, long ago", "before a restart", "of a process that is gone"],
)
def test_promises_of_processes_that_cannot_be_seen(
    folder: Path, machine: FakeMachine, age_s: int, space: int | None, counts: bool
) -> None:
    left = Promise(
        key=1,
        pid=2**22 + 1,
        started=5,
        space=host_ledger._space() if space is None else space,
        written=host_ledger._now() - age_s,
        groups=(),
        family=0,
        bytes=GIB,
        touched=0,
    )
    ledger_path(folder).write_bytes(encode([left]))
    assert plan(folder, machine).promised == (GIB if counts else 0)
    ledger_path(folder).unlink(missing_ok=True)


def test_all_processes_of_a_host_have_one_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert ledger_path().parent in host_ledger.FOLDERS
