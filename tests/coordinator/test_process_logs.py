"""What processes wrote, kept and read again: in order, followed over a change of files, and never in anybody's way."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from coordinator.log_reading import LogReader, in_order
from coordinator.process_logs import ProcessLogs, default_folder, file_of, names_in, stamped

T1, T2, T3 = ("2026-01-01 00:00:00,001 ", "2026-01-01 00:00:00,002 ", "2026-01-01 00:00:01,000 ")


def test_a_cluster_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_folder("tcp://127.0.0.1:7600") == Path("/state/expertmesh/logs/tcp-127.0.0.1-7600")
    assert default_folder("ipc://@../../x") == Path("/state/expertmesh/logs/ipc-..-..-x")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder("tcp://127.0.0.1:1") == Path("/home/me/.local/state/expertmesh/logs/tcp-127.0.0.1-1")


def test_lines_are_appended_by_name_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    for _ in range(2):
        with ProcessLogs(tmp_path / "a" / "logs") as logs:
            logs.write("box-0", ["one", "two"])
            logs.write("launcher", ["three"])
    assert file_of(tmp_path / "a" / "logs", "box-0").read_text() == "one\ntwo\n" * 2
    assert names_in(tmp_path / "a" / "logs") == ["launcher", "box-0"]
    assert (tmp_path / "a" / "logs").stat().st_mode & 0o777 == 0o700
    assert names_in(tmp_path / "none") == []


def test_a_file_that_is_full_becomes_the_old_one(tmp_path: Path) -> None:
    with ProcessLogs(tmp_path, max_bytes=10) as logs:
        for number in range(10):
            logs.write("a", [f"line {number}"])
    assert (tmp_path / "a.log").read_text() == "line 8\nline 9\n"
    assert (tmp_path / "a.log.1").read_text() == "line 6\nline 7\n"
    assert names_in(tmp_path) == ["a"]


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    with ProcessLogs(tmp_path, max_bytes=1 << 20) as logs:
        threads = [threading.Thread(target=lambda: [logs.write("a", ["x" * 99]) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert set((tmp_path / "a.log").read_text().splitlines()) == {"x" * 99}


@pytest.mark.parametrize("where", ["a file", "a file/below"])
def test_what_cannot_be_kept_is_told_and_harms_nobody(tmp_path: Path, where: str) -> None:
    (tmp_path / "a file").write_text("")
    with ProcessLogs(tmp_path / where) as logs:
        logs.write("a", ["x"])
        assert logs.failed == f"{tmp_path / where}/a.log: Not a directory"
    logs.write("a", ["after the end"])


def test_a_stamp_is_what_processes_write() -> None:
    line = stamped("x", 1_700_000_000.5)
    assert line.endswith(",500 x")
    assert in_order([("a", [T3 + "late"]), ("b", [line])])[0] == ("b", line)


def test_lines_come_in_the_order_of_their_times_and_a_traceback_stays_together() -> None:
    a = [T1 + "a", "Traceback", "  more", T3 + "a"]
    b = ["no time yet", T2 + "b"]
    expected = [("b", b[0]), ("a", a[0]), ("a", a[1]), ("a", a[2]), ("b", b[1]), ("a", a[3])]
    assert in_order([("a", a), ("b", b)]) == expected


def test_the_last_lines_and_then_what_comes(tmp_path: Path) -> None:
    with ProcessLogs(tmp_path) as logs, LogReader(tmp_path) as reader:
        logs.write("a", [T1 + "1", T3 + "2"])
        logs.write("b", [T2 + "3"])
        assert reader.last(1) == [("b", T2 + "3"), ("a", T3 + "2")]
        assert reader.more() == []
        logs.write("b", ["4"])
        logs.write("new", ["5"])
        assert reader.more() == [("b", "4"), ("new", "5")]
        with file_of(tmp_path, "a").open("a") as file:
            file.write("half")
            file.flush()
            assert reader.more() == []
            file.write(" and half\n")
        assert reader.more() == [("a", "half and half")]


def test_a_reader_follows_to_the_next_file(tmp_path: Path) -> None:
    with ProcessLogs(tmp_path, max_bytes=10) as logs, LogReader(tmp_path, ["a"]) as reader:
        seen: list[str] = []
        for number in range(20):
            logs.write("a", [f"line {number}"])
            logs.write("b", ["not asked for"])
            seen += [line for _, line in reader.more()]
        assert seen == [f"line {number}" for number in range(20)]


def test_of_a_long_file_only_the_end_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.log").open("wb") as file:
        file.write(b"x" * 99 + b"\n")
        os.truncate(file.fileno(), 1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    with LogReader(tmp_path) as reader:
        assert reader.last(1) == [("a", "last")]
