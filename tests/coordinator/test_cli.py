"""The command line as a person meets it: real processes, the demo model."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from command_line import COMMAND, ROOT, environment, processes_of, run, start, wait_until

from coordinator.demo import demo_model as _demo
from protocol.model import Model

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
    "drafts",
    "isa",
    "threads",
    "device",
    "device_entries",
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
    assert (report["device"], report["device_entries"], report["local_entries"]) == ("cpu", 0, 0)
    assert [list(worker) for worker in report["workers"]] == [
        ["name", "pid", "experts", "calls", "entries", "busy_s", "wait_s"]
    ] * 2
    assert [worker["name"] for worker in report["workers"]] == ["worker-0", "worker-1"]
    assert [worker["experts"] for worker in report["workers"]] == [6 * 16] * 2  # a team holds all of it
    assert sum(worker["entries"] for worker in report["workers"]) == 6 * 4 * (len(PROMPT_IDS) + 12 - 1)
    assert all(worker["calls"] > 0 and worker["busy_s"] > 0 and worker["wait_s"] > 0 for worker in report["workers"])


def test_the_ways_to_give_a_prompt_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT, "utf-8-sig")  # some editors begin with a mark
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


@pytest.mark.parametrize("options", [[], ["--stop", "import weak"], ["--temperature", 0.4, "--seed", 1]])
def test_drafts_save_steps_and_change_nothing(options: list[object]) -> None:
    prompt = "import os\nimport re\nimport sys\nimport os\nimport re\nimport sys\n"
    without, drafting = (
        json.loads(run("generate", "--json", "--max-tokens", 80, "--drafts", drafts, *options, prompt).stdout)
        for drafts in (0, 8)
    )
    for same in ("ids", "text", "finish_reason", "sha256_ids", "sha256_logits"):
        assert drafting[same] == without[same]
    assert without["drafts"]["drafted"] == 0
    assert drafting["drafts"]["accepted"] <= drafting["drafts"]["drafted"]
    if without["finish_reason"] == "length":
        assert drafting["drafts"]["steps"] + drafting["drafts"]["accepted"] == without["drafts"]["steps"]


def test_sampling_depends_on_the_seed_alone() -> None:
    def ids(*options: object) -> list[int]:
        done = run("generate", "--json", "--max-tokens", 16, "--temperature", 1.5, *options, PROMPT)
        found: list[int] = json.loads(done.stdout)["ids"]
        return found

    assert ids("--seed", 3) == ids("--seed", 3, "--threads", 1, "--chunk", 2) != ids("--seed", 4)


def test_an_error_is_a_line_and_exit_code_2_whichever_process_finds_it(tmp_path: Path, demo_model: Path) -> None:
    """All messages are in test_error_messages.py and the files that it names, found without starting anything."""
    whole = demo_model.read_bytes()
    sound, cut, odd = (tmp_path / f"{name}.gguf" for name in ("sound", "cut", "odd"))
    sound.write_bytes(whole)
    cut.write_bytes(whole[:1000])
    odd.write_bytes(whole.replace(b"blk.3.attn_norm.weight", b"blk.3.attn_norm.oddity"))
    for path, arguments, error in (
        (sound, [""], "the prompt is empty: one token at least is expected"),
        (sound, ["--max-tokens", 2048, "x"], "1 prompt token and 2048 new ones need 2049 positions, {context}"),
        (cut, ["x"], "{path}: part of the 75 tensors stated lies outside of the file of 1000 bytes: was it truncated?"),
        (odd, ["x"], "{path}: tensor 'blk.3.attn_norm.weight' is missing"),
        (odd, ["--dry-run", "x"], "{path}: tensor 'blk.3.attn_norm.weight' is missing"),
    ):
        done = run("generate", "--workers", 2, "--model", path, *arguments)
        said = error.format(path=path, context="the model's context has 2048")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said}\n")
        assert processes_of(str(path)) == []


def test_ids_in_a_file_are_those_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("5, 6,\n7\n")
    in_file, on_line = (
        json.loads(run("generate", "--json", "--max-tokens", 2, "--prompt-ids", ids).stdout)
        for ids in (f"@{tmp_path}/ids", "5,6,7")
    )
    assert in_file["prompt_ids"] == [5, 6, 7]
    assert in_file["sha256_logits"] == on_line["sha256_logits"]


@pytest.mark.parametrize("tokens", [2047, 300_000])
def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(tmp_path: Path, tokens: int) -> None:
    (tmp_path / "ids").write_text(",".join(["7"] * tokens))
    done = run("generate", "--max-tokens", 2, "--prompt-ids", f"@{tmp_path}/ids")
    error = f"error: {tokens} prompt tokens and 2 new ones need {tokens + 2} positions, the model's context has 2048\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)


def test_the_largest_settings_work() -> None:
    settings = ["--seed", 2**63 - 1, "--top-k", sys.maxsize, "--repeat-window", sys.maxsize, "--temperature", 1]
    assert run("generate", "--json", "--max-tokens", 2, *settings, "x").returncode == 0


def test_a_worker_with_another_model_is_refused_in_words(tmp_path: Path, demo_model: Path) -> None:
    other = tmp_path / "renamed.gguf"
    shutil.copy(demo_model, other)
    file = tmp_path / "c.toml"
    file.write_text(
        f'[model]\npath = "{demo_model}"\n[coordinator]\nlisten = "ipc://@expertmesh-test-{secrets.token_hex(8)}"\n'
        f'[[workers]]\nname = "odd"\nmodel_path = "{other}"\n'
    )
    done = run("generate", "--config", file, "x")
    assert (done.returncode, done.stdout) == (2, "")
    with Model.open(other) as wrong, Model.open(demo_model) as right:
        found, expected = wrong.fingerprint, right.fingerprint
    assert re.fullmatch(
        rf"error: the coordinator at ipc://@expertmesh-\w+ refused: fingerprint is {found}, expected {expected}: "
        r"the coordinator's model, with the same files under the same names\n",
        done.stderr,
    )


def test_a_workers_warning_is_shown_once_to_who_waits_for_the_answer(tmp_path: Path, demo_model: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        f'[model]\npath = "{demo_model}"\n[coordinator]\nlisten = "ipc://@expertmesh-test-{secrets.token_hex(8)}"\n'
        '[[workers]]\nname = "w"\ncount = 2\nsource = "arena"\nheadroom_gib = 4096\n'
    )
    done = run("generate", "--config", file, "--max-tokens", 12, PROMPT)
    assert (done.returncode, done.stdout) == (0, " and all the days of his life, and the days of\n")
    [line] = [line for line in done.stderr.splitlines() if "cannot be held" in line]
    assert re.match(r"w-[01]: placement 1 cannot be held: copies of all experts take [0-9]+ bytes, but ", line)


def test_dry_run_starts_nothing_and_shows_the_commands(tmp_path: Path, demo_model: Path) -> None:
    marked = tmp_path / "dry.gguf"
    marked.symlink_to(demo_model)
    done = run("generate", "--dry-run", "--model", marked, "--workers", 2, "--threads", 2, "x")
    assert done.returncode == 0
    assert done.stdout.count("-m expert_worker.main") == 2
    assert done.stdout.count("-m coordinator.main") == 1
    control, work = re.findall(r"^(?:control|work) +(ipc://@expertmesh-.*)$", done.stdout, re.MULTILINE)
    assert work == f"{control}-work"
    assert processes_of(control) == []


def test_dry_run_shows_the_device_and_does_not_look_for_it() -> None:
    done = run("generate", "--dry-run", "--device", "cuda:5", "--vram-gib", 1.5, "x")
    assert done.returncode == 0
    assert done.stdout.endswith(" --device cuda:5 --vram-gib 1.5\n")


@pytest.mark.parametrize("command", [["generate", "x"], ["generate", "--workers", 1, "x"], ["logits", "--ids", 1]])
def test_a_gpu_that_cannot_be_used_is_told_in_one_line(tmp_path: Path, command: list[object]) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('not in this test')\n")
    if command[0] == "logits":
        command = [*command, "--out", tmp_path / "x.npy"]
    done = run(*command, "--device", "cuda:0", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    error = (
        "error: device cuda:0: it is used through cupy, which cannot be loaded (not in this test): "
        "the extras cuda12 and cuda13 install it\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)
    assert not (tmp_path / "x.npy").exists()


def test_a_stranger_at_the_port_is_not_waited_for_long(tmp_path: Path, demo_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        listen = f"tcp://127.0.0.1:{stranger.getsockname()[1]}"
        file = tmp_path / "c.toml"
        file.write_text(f'[model]\npath = "{demo_model}"\n[coordinator]\nlisten = "{listen}"\n')
        done = run("generate", "--config", file, "x")
    assert (done.returncode, done.stderr) == (2, f"error: no coordinator answers at {listen} within 5 s\n")


SOON = [0.0, 0.05, 0.15, 0.3]


def catches_sigterm(pid: int) -> bool:
    """Its first lines have run: before that, signals are the interpreter's."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["generate", "up", "logits", "worker"])
def test_a_signal_while_it_starts_is_an_exit_code(
    tmp_path: Path, demo_model: Path, command: str, number: signal.Signals
) -> None:
    marked = tmp_path / "marked.gguf"
    shutil.copy(demo_model, marked)
    endpoint = f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
    file = tmp_path / "c.toml"
    file.write_text(f'[model]\npath = "{marked}"\n[coordinator]\nlisten = "{endpoint}"\n')
    arguments = {
        "generate": ["--model", marked, "--workers", 1, "--max-tokens", 2000, "--ignore-eos", PROMPT],
        "up": [file],
        "logits": ["--model", marked, "--ids", ",".join(["1"] * 2000), "--out", tmp_path / "o.npy"],
        "worker": ["--model", marked, "--connect", endpoint],
    }[command]
    for moment in SOON:
        process = start(command, *arguments)
        assert wait_until(partial(catches_sigterm, process.pid), within_s=10.0)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(moment)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        in_order = {"up": [0], "worker": [0]}.get(command, [])  # how those end that have started
        assert process.returncode in [128 + number, *in_order], errors
        assert "Traceback" not in errors
        assert "xception" not in errors
        assert wait_until(lambda: processes_of(str(marked)) == [], within_s=20.0)


def test_an_instruction_set_that_is_not_there_is_refused_and_one_that_is_there_used() -> None:
    model = ["--model", _demo()]
    for command in (
        ["generate", "x"],
        ["up", ROOT / "configs" / "local-1.toml"],
        ["worker", "--connect", "tcp://127.0.0.1:1", *model],
        ["peer", "--connect", "tcp://127.0.0.1:1", *model],
        ["lookahead", "--connect", "tcp://127.0.0.1:1", *model],
        ["logits", "--ids", "1", "--out", "x.npy"],
        ["-m", "coordinator.main", "--listen", "tcp://127.0.0.1:1", *model],
        ["-m", "expert_worker.main", "--connect", "tcp://127.0.0.1:1", *model],
        ["-m", "peer_gpu.main", "--connect", "tcp://127.0.0.1:1", *model],
    ):
        start_of_line = [sys.executable, "-P"] if command[0] == "-m" else COMMAND
        done = subprocess.run(
            [*start_of_line, *map(str, command)],
            env=environment({"EXPERTMESH_ISA": "abacus"}),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == 2
        assert re.fullmatch(r"error: EXPERTMESH_ISA: .*one of .* expected on this machine, found abacus\n", done.stderr)
    done = run("generate", "--json", "--max-tokens", 1, "x", env={"EXPERTMESH_ISA": "scalar"})
    assert json.loads(done.stdout)["isa"] == "scalar"


@pytest.mark.parametrize(
    "command", [["generate", "x"], ["generate", "--json", "x"], ["generate", "--dry-run"], ["--help"]]
)
def test_a_closed_stdout_is_told_by_name(command: list[str]) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *command],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: stdout is closed")


@pytest.mark.parametrize("options", [["--json"], [], ["--dry-run"]])
def test_a_stdout_that_takes_no_more_is_told_by_name(tmp_path: Path, options: list[str]) -> None:
    limit = ["/bin/sh", "-c", 'ulimit -f 0; exec "$@" >"$OUT"', "sh"]  # as on a full disk
    done = subprocess.run(
        [*limit, *COMMAND, "generate", "--max-tokens", "2", *options, "x"],
        env=environment({"OUT": str(tmp_path / "out")}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr) == (2, "error: stdout: File too large\n")


def test_a_worker_that_finds_no_coordinator_says_so() -> None:
    endpoint = f"ipc://@expertmesh-nobody-{os.getpid()}"
    done = run("worker", "--connect", endpoint, "--model", _demo(), "--name", "w", "--orphan-s", 1)
    assert done.returncode == 2
    speed, source, dialling, last = done.stderr.splitlines()
    assert "an expert of one row takes" in speed
    assert "experts come from: mapped" in source
    assert f"dialling {endpoint} as w" in dialling
    assert last == f"error: no word from a coordinator at {endpoint} for 1 s"


def test_a_lookahead_process_that_finds_no_coordinator_says_so() -> None:
    endpoint = f"ipc://@expertmesh-nobody-{os.getpid()}"
    done = run("lookahead", "--connect", endpoint, "--model", _demo(), "--predictor", "random", "--orphan-s", 1)
    assert done.returncode == 2
    assert "predictor random" in done.stderr
    assert done.stderr.splitlines()[-1] == f"error: no word from a coordinator at {endpoint} for 1 s"


@pytest.mark.parametrize(("choice", "processes"), [("on", 4), ("off", 3), ("auto", 3)])
def test_whether_there_is_a_lookahead_process_can_be_said(choice: str, processes: int) -> None:
    done = run("generate", "--workers", 2, "--lookahead", choice, "--dry-run", "x")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n\n") == processes
    assert ("expert_worker.lookahead.main" in done.stdout) == (choice == "on")
    assert f"lookahead is {'on' if choice == 'on' else 'off'}: " in done.stdout


@pytest.mark.skipif(find_spec("cupy") is not None, reason="cupy is here")
def test_a_peer_without_cupy_says_what_is_missing() -> None:
    done = run("peer", "--connect", "ipc://@c", "--model", _demo(), "--device", "cuda:1", "--vram-gib", "0.5")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: device cuda:1: it is used through cupy, which cannot be loaded (")


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("generate", "up", "worker", "peer", "lookahead", "logits"))


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
        assert wait_until(lambda: processes_of(str(marked)) == [], within_s=20.0)
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
        done = run("logits", "--ids", ids, "--kv", "f32", "--chunk", chunk, "--out", file)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    logits = np.load(first)
    assert (logits.dtype, logits.shape) == (np.dtype("<f4"), (5, 4096))
    assert logits.tobytes() == np.load(second).tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npy", "two.npy"]
    generated = json.loads(run("generate", "--json", "--kv", "f32", "--max-tokens", 1, "--prompt-ids", ids).stdout)
    assert generated["sha256_logits"] == hashlib.sha256(logits[-1].tobytes()).hexdigest()
