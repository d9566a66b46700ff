"""The command line as a person meets it: real processes, the demo model."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from command_line import processes_of, run, start, wait_until

pytestmark = pytest.mark.timeout(120)

PROMPT = "In the beginning God created"
PROMPT_IDS = [1084, 262, 3477, 632, 2073]
JSON_KEYS = [
    "prompt_ids",
    "ids",
    "text",
    "finish_reason",
    "sha256_ids",
    "sha256_logits",
    "prompt_tps",
    "decode_tps",
    "isa",
    "threads",
    "local_entries",
    "workers",
]


def test_text_goes_to_stdout_and_everything_else_to_stderr() -> None:
    done = run("generate", "--max-tokens", 12, PROMPT)
    assert done.returncode == 0
    assert done.stdout == " and all the days of his life, and the days of\n"
    assert "12 tokens" in done.stderr
    assert "ended by length" in done.stderr


def test_json_tells_everything_and_nothing_else_is_printed() -> None:
    done = run("generate", "--json", "--workers", 2, "--threads", 2, "--max-tokens", 12, PROMPT)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert list(report) == JSON_KEYS
    assert report["prompt_ids"] == PROMPT_IDS
    assert report["text"] == " and all the days of his life, and the days of"
    assert len(report["ids"]) == 12
    assert report["finish_reason"] == "length"
    assert report["sha256_ids"] == hashlib.sha256(np.array(report["ids"], "<i4").tobytes()).hexdigest()
    assert len(bytes.fromhex(report["sha256_logits"])) == 32
    assert report["prompt_tps"] > 0
    assert report["decode_tps"] > 0
    assert report["threads"] == 2
    assert report["local_entries"] == 0
    assert [list(worker) for worker in report["workers"]] == [
        ["name", "pid", "experts", "calls", "entries", "busy_s", "wait_s"]
    ] * 2
    assert [worker["name"] for worker in report["workers"]] == ["worker-0", "worker-1"]
    assert sum(worker["experts"] for worker in report["workers"]) == 6 * 16
    assert sum(worker["entries"] for worker in report["workers"]) == 6 * 4 * (len(PROMPT_IDS) + 12 - 1)
    assert all(worker["calls"] > 0 and worker["busy_s"] > 0 and worker["wait_s"] > 0 for worker in report["workers"])


def test_the_ways_to_give_a_prompt_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT)
    ways = (["--prompt-file", file], ["--prompt-ids", ",".join(map(str, PROMPT_IDS))])
    reports = [json.loads(run("generate", "--json", "--max-tokens", 4, *way).stdout) for way in ways]
    assert reports[0]["prompt_ids"] == reports[1]["prompt_ids"] == PROMPT_IDS
    assert reports[0]["sha256_logits"] == reports[1]["sha256_logits"]


def test_a_stop_string_ends_the_answer_before_it() -> None:
    report = json.loads(
        run("generate", "--json", "--stop", "nowhere", "--stop", "of his", "--max-tokens", 50, PROMPT).stdout
    )
    assert report["text"] == " and all the days "
    assert report["finish_reason"] == "stop"
    assert len(report["ids"]) == 6
    shorter = json.loads(run("generate", "--json", "--max-tokens", 6, PROMPT).stdout)
    assert report["ids"] == shorter["ids"]
    assert report["sha256_logits"] == shorter["sha256_logits"]


def test_a_token_that_means_the_end_is_obeyed_or_ignored() -> None:
    obeyed, ignored = (
        json.loads(run("generate", "--json", "--max-tokens", 300, *options, "hacker: n.").stdout)
        for options in ([], ["--ignore-eos"])
    )
    assert (obeyed["finish_reason"], ignored["finish_reason"]) == ("stop", "length")
    assert len(obeyed["ids"]) < 300 == len(ignored["ids"])
    assert ignored["ids"][: len(obeyed["ids"])] == obeyed["ids"]


def test_sampling_depends_on_the_seed_alone() -> None:
    def ids(*options: object) -> list[int]:
        done = run("generate", "--json", "--max-tokens", 16, "--temperature", 1.5, *options, PROMPT)
        found: list[int] = json.loads(done.stdout)["ids"]
        return found

    assert ids("--seed", 3) == ids("--seed", 3, "--threads", 1, "--chunk", 2) != ids("--seed", 4)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "one of PROMPT, --prompt-file and --prompt-ids is expected, found none"),
        (["x", "--prompt-ids", "1"], "one of PROMPT, --prompt-file and --prompt-ids is expected, found PROMPT and"),
        ([""], "the prompt is empty: one token at least is expected"),
        (["--prompt-ids", "1,two"], "--prompt-ids: 'two' is not a token id"),
        (["--prompt-ids", "1,,2"], "--prompt-ids: '' is not a token id"),
        (["--prompt-ids", "-1"], "--prompt-ids: '-1' is not a token id"),
        (["--prompt-ids", "99999999999"], "--prompt-ids: '99999999999' is not a token id"),
        (["--prompt-ids", "5,4096"], "token id 4096 at index 1 is not in the vocabulary: expected 0..4095"),
        (["--prompt-file", "{folder}/none.txt"], "{folder}/none.txt: No such file or directory"),
        (["--prompt-file", "{folder}/bytes.txt"], "{folder}/bytes.txt: byte 2 is not UTF-8 text"),
        (
            ["--model", "{folder}/none.gguf", "x"],
            "Invalid value for '--model': File '{folder}/none.gguf' does not exist.",
        ),
        (["--model", "{folder}/bytes.txt", "x"], "{folder}/bytes.txt: not a GGUF file"),
        (["--config", "{folder}/bytes.txt", "x"], "{folder}/bytes.txt: not a TOML file"),
        (["--config", "{folder}/c.toml", "--workers", "1", "x"], "--workers and --config exclude each other"),
        (["--max-tokens", "2048", "x"], "1 prompt tokens and 2048 new ones need 2049 positions"),
        (["--top-p", "2", "x"], "top_p is 2.0, expected a number over 0 and up to 1"),
        (["--stop", "", "x"], "stop strings ('',): a list of strings expected, none of them empty"),
        (["--workers", "many", "x"], "Invalid value for '--workers': 'many' is not a valid integer range."),
        (["--no-such-option"], "No such option"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], error: str) -> None:
    (tmp_path / "bytes.txt").write_bytes(b"ok\xff\xfe")
    (tmp_path / "c.toml").write_text('[model]\npath = "bytes.txt"\n')
    done = run("generate", *(argument.replace("{folder}", str(tmp_path)) for argument in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {error.replace('{folder}', str(tmp_path))}")


def test_problems_of_a_cluster_file_are_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[model]\npath = "none"\n[coordinator]\nkv = "q4"\n')
    done = run("up", file)
    assert done.returncode == 2
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()] == [
        ["error", f"{file}, line 2"],
        ["error", f"{file}, line 4"],
    ]


def test_a_worker_with_another_model_is_refused_in_words(tmp_path: Path, demo_model: Path) -> None:
    other = tmp_path / "renamed.gguf"
    shutil.copy(demo_model, other)
    file = tmp_path / "c.toml"
    file.write_text(
        f'[model]\npath = "{demo_model}"\n[coordinator]\nlisten = "ipc://@{tmp_path.name}-{demo_model.stat().st_mtime_ns}"\n'
        f'[[workers]]\nname = "odd"\nmodel_path = "{other}"\n'
    )
    done = run("generate", "--config", file, "x")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "fingerprint" in line


def test_dry_run_starts_nothing_and_shows_the_commands(tmp_path: Path, demo_model: Path) -> None:
    marked = tmp_path / "dry.gguf"
    marked.symlink_to(demo_model)
    done = run("generate", "--dry-run", "--model", marked, "--workers", 2, "--threads", 2)
    assert done.returncode == 0
    assert done.stdout.count("-m expert_worker.main") == 2
    assert done.stdout.count("-m coordinator.main") == 1
    control, work = re.findall(r"^(?:control|work) +(ipc://@expertmesh-.*)$", done.stdout, re.MULTILINE)
    assert work == f"{control}-work"
    assert processes_of(control) == []


def test_an_instruction_set_that_is_not_there_is_refused_and_one_that_is_there_used() -> None:
    done = run("generate", "x", env={"EXPERTMESH_ISA": "abacus"})
    assert done.returncode == 2
    assert re.fullmatch(r"error: instruction set: one of .* expected on this machine, found abacus\n", done.stderr)
    done = run("generate", "--json", "--max-tokens", 1, "x", env={"EXPERTMESH_ISA": "scalar"})
    assert json.loads(done.stdout)["isa"] == "scalar"


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("generate", "up", "worker", "logits"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_answer_leaves_nothing(tmp_path: Path, demo_model: Path, number: signal.Signals) -> None:
    marked = tmp_path / "marked.gguf"
    shutil.copy(demo_model, marked)
    process = start("generate", "--model", marked, "--workers", 2, "--max-tokens", 2000, "--ignore-eos", PROMPT)
    try:
        assert process.stdout is not None
        assert process.stdout.read(20)  # the answer has begun
        assert len(processes_of(str(marked))) == 4
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 128 + number
        assert "Traceback" not in errors
        assert wait_until(lambda: processes_of(str(marked)) == [], within_s=5.0)
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    process = start("generate", "--max-tokens", 400, "--ignore-eos", PROMPT)
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait(60) != 0
    assert errors == ""
    process.stderr.close()


def test_logits_of_every_position(tmp_path: Path) -> None:
    first, second = tmp_path / "one.npy", tmp_path / "two.npy"
    ids = ",".join(map(str, PROMPT_IDS))
    for file, chunk in ((first, 64), (second, 2)):
        done = run("logits", "--model", _demo(), "--ids", ids, "--kv", "f32", "--chunk", chunk, "--out", file)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    logits = np.load(first)
    assert (logits.dtype, logits.shape) == (np.dtype("<f4"), (5, 4096))
    assert logits.tobytes() == np.load(second).tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npy", "two.npy"]
    generated = json.loads(run("generate", "--json", "--kv", "f32", "--max-tokens", 1, "--prompt-ids", ids).stdout)
    assert generated["sha256_logits"] == hashlib.sha256(logits[-1].tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--ids", "1,4096"], "token id 4096 at index 1 is not in the vocabulary"),
        (["--ids", "1", "--out", "{folder}/no/where.npy"], "{folder}/no/where.npy cannot be written: No such file"),
    ],
)
def test_logits_that_cannot_be_written_leave_nothing(tmp_path: Path, options: list[str], error: str) -> None:
    arguments = [option.replace("{folder}", str(tmp_path)) for option in options]
    done = run("logits", "--model", _demo(), "--out", tmp_path / "x.npy", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {error.replace('{folder}', str(tmp_path))}")
    assert list(tmp_path.iterdir()) == []


def _demo() -> Path:
    from coordinator.demo import demo_model

    return demo_model()
