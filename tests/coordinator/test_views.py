"""What people see of answers and clusters, whatever workers are called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from reports import cluster_report, worker_row

from coordinator.cli.answer_view import AnswerView
from coordinator.cli.cluster_view import LiveView, PlainView
from coordinator.config import ClusterConfig, PeerConfig, WorkerGroup
from coordinator.supervisor import Role

NAMES = ["[/b]", "[bold]loud", ":skull:", "\x1b[31mred", "a\nb", "\u202eback"]


def answer_report(**changes: Any) -> dict[str, Any]:
    report = {"prompt_ids": [1], "ids": [2, 3], "prompt_tps": 10.0, "decode_tps": None, "finish_reason": "length"}
    digests = {"sha256_ids": "a" * 64, "sha256_logits": "b" * 64}
    return {
        **report,
        **digests,
        "isa": "avx2",
        "threads": 2,
        "drafts": {"steps": 1, "drafted": 0, "accepted": 0, "acceptance": None},
        "device": "cpu",
        "local_entries": 1,
        "workers": [],
        **changes,
    }


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def shown(name: str) -> str:
    return re.sub(r"[^ -~]", lambda letter: ascii(letter[0])[1:-1], name)


@pytest.mark.parametrize("name", NAMES)
def test_an_answers_workers_are_shown_by_name(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with AnswerView(show_text=True) as view:
        view.tell(f"{name} is lost")
        view.report(answer_report(workers=[worker_row(name)], isa=name))
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == f"{shown(name)} is lost"
    assert lines[3] == f"kernels  {shown(name)}, threads: 2"
    assert lines[-1].startswith(f"{shown(name)} ")
    assert all(line.isprintable() for line in lines)


def test_a_device_and_what_it_computed_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with AnswerView(show_text=True) as view:
        view.report(answer_report(device="cuda:0", device_entries=12))
    assert "device   cuda:0, 12 expert entries computed there" in capfd.readouterr().err.splitlines()
    with LiveView(ClusterConfig(model=Path("/m.gguf"))) as live:
        live.show([], {**cluster_report(), "device": "cuda:0", "device_experts": 96})
    assert "avx2, cuda:0 holds 96 experts, local entries 0" in capfd.readouterr().out


def test_drafts_are_spoken_of_where_there_were_some(capfd: pytest.CaptureFixture[str]) -> None:
    counts = {"steps": 12, "drafted": 9, "accepted": 6}
    for drafted in (True, False):
        drafts = {"drafts": counts} if drafted else {}
        with AnswerView(show_text=True) as view:
            view.report(answer_report(**drafts))
        with LiveView(ClusterConfig(model=Path("/m.gguf"))) as live:
            live.show([], {**cluster_report(), **drafts})
        output, errors = capfd.readouterr()
        assert ("drafts   6 of 9 accepted, 12 steps after the first token" in errors.splitlines()) == drafted
        assert ("late replies 0, drafts 6/9" in output) == drafted
        assert ("drafts" in output + errors) == drafted


def test_audits_are_spoken_of_where_there_were_some(capfd: pytest.CaptureFixture[str]) -> None:
    for audits, said in ((0, ""), (1, "late replies 0, 1 answer audited"), (20, "late replies 0, 20 answers audited")):
        with LiveView(ClusterConfig(model=Path("/m.gguf"))) as live:
            live.show([], {**cluster_report(), "audits": audits})
        output = capfd.readouterr().out
        assert said in output
        assert ("audited" in output) == bool(said)


def test_a_profile_is_spoken_of_where_there_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    for profile in (None, {"rows": 1, "experts_90": 17}):
        with LiveView(ClusterConfig(model=Path("/m.gguf"))) as live:
            live.show([], {**cluster_report(), "profile": profile})
        said = "late replies 0, profile: 1 row seen, 90 % of uses in 17 experts"
        assert (said in capfd.readouterr().out) == (profile is not None)


@pytest.mark.parametrize("name", NAMES)
def test_a_clusters_workers_are_shown_by_name(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    config = ClusterConfig(model=Path(f"/{name}.gguf"), workers=(WorkerGroup(name="w"),))
    for kind in (PlainView, LiveView):
        with kind(config) as view:
            view.tell(f"{name} is lost")
            view.show([Role(name=name, pid=7)], cluster_report(worker_row(name)))
        output = capfd.readouterr().out
        assert f"{shown(name)} is lost" in output
        assert output.count(shown(name)) >= 2
        assert all(line.isprintable() for line in output.splitlines())


@pytest.mark.parametrize(
    ("columns", "left_out"), [(100, []), (80, ["process", "restarts"]), (70, ["process", "restarts", "beat"])]
)
def test_each_role_is_one_line_of_a_narrow_table(
    columns: int, left_out: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    roles = [Role(name="coordinator", pid=1000000), Role(name="box-0", pid=7)]
    with LiveView(ClusterConfig(model=Path("m"))) as view:
        for calls in (1, 2):
            view.show(roles, cluster_report(worker_row("box-0", calls=calls, source="direct")))
    lines = capfd.readouterr().out.splitlines()
    headings, *rows = lines[-3:]
    assert [heading for heading in ("process", "restarts", "beat") if heading not in headings] == left_out
    assert [row.split()[0] for row in rows] == ["coordinator", "box-0"]
    assert rows[-1].rstrip().endswith("2 MiB  direct (0%)")


def test_lines_end_where_their_words_do(capfd: pytest.CaptureFixture[str]) -> None:
    with AnswerView(show_text=True) as view:
        view.report(answer_report(workers=[worker_row("a"), worker_row("longer")]))
    assert all(line == line.rstrip() for line in capfd.readouterr().err.splitlines())


def test_one_is_not_several(capfd: pytest.CaptureFixture[str]) -> None:
    with PlainView(ClusterConfig(model=Path("m"), workers=(WorkerGroup(name="w"),))) as view:
        view.show([], cluster_report(worker_row("w")))
    with AnswerView(show_text=True) as answer_view:
        answer_view.report(answer_report())
    output, errors = capfd.readouterr()
    assert "and 1 worker\n" in output
    assert "1 worker holds experts (w 3)" in output
    assert "1 token," in errors
    assert "1 expert entry " in errors


def test_peers_are_told_apart_from_workers(capfd: pytest.CaptureFixture[str]) -> None:
    peers = (PeerConfig(name="a"), PeerConfig(name="b", device=1))
    with PlainView(ClusterConfig(model=Path("m"), workers=(WorkerGroup(name="w"),), peers=peers)):
        assert capfd.readouterr().out.endswith("starting a coordinator at tcp://127.0.0.1:7600, 1 worker and 2 peers\n")


@pytest.mark.parametrize(("text", "end"), [("amid", "amid\n"), ("a line\n", "a line\n")])
def test_what_ends_an_answer_early_ends_its_line(text: str, end: str, capfd: pytest.CaptureFixture[str]) -> None:
    view = AnswerView(show_text=True)
    with view:
        view.text(text)
    assert capfd.readouterr().out == end


@pytest.mark.parametrize("show_text", [True, False])
def test_without_a_terminal_a_line_now_and_then_tells_how_far_a_long_prompt_is(
    show_text: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    with AnswerView(show_text=show_text, clock=lambda: now) as view:
        for chunk in range(1, 9):
            now += 4.0
            view.prefilled(100 * chunk, 800)
    output, errors = capfd.readouterr()
    expected = [
        "reading the prompt: 300 of 800 tokens, 25 a second, 20 s left",
        "reading the prompt: 600 of 800 tokens, 25 a second, 8 s left",
    ]
    assert (output, errors.splitlines()) == ("", expected if show_text else []), "--json prints nothing else"


def test_a_prompt_that_is_read_at_once_is_not_spoken_of(capfd: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with AnswerView(show_text=True, clock=lambda: now) as view:
        now = 100.0
        view.prefilled(500, 500)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("reading", "shown"),
    [
        ([], "requests 2, avx2"),
        ([[8192, 32768]], "requests 2, reading prompt 8192/32768, avx2"),
        ([[10, 20], [0, 5]], "requests 2, reading 2 prompts 10/25, avx2"),
    ],
)
def test_the_table_of_a_cluster_tells_how_far_prompts_are(
    reading: list[list[int]], shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with LiveView(ClusterConfig(model=Path("m"), workers=(WorkerGroup(name="w"),))) as view:
        view.show([], {**cluster_report(worker_row("w")), "requests": 2, "reading": reading})
    assert shown in capfd.readouterr().out
