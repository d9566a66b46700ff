"""A whole comparison, short: real clusters, and llama_side.py with a library that only looks like llama.cpp's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent
FAKE_LIBRARY = """
import ctypes, os

__version__ = "9.9"
llama_token = ctypes.c_int32
llama_log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
LOGITS = (ctypes.c_float * 4)(0, 0, 1, 0)

class Values:
    pass

def nothing(*arguments):
    return None

llama_log_set = llama_backend_init = llama_set_n_threads = llama_memory_clear = nothing
llama_model_default_params = llama_context_default_params = llama_init_from_model = lambda *_: Values()
llama_model_get_vocab = llama_get_memory = lambda _: Values()

def llama_model_load_from_file(path, params):
    return Values() if os.path.exists(path) and params.n_gpu_layers == 0 else None

def llama_vocab_n_tokens(vocabulary):
    return len(LOGITS)

def llama_print_system_info():
    return b"CPU : FAKE = 1 | "

def llama_batch_init(tokens, embd, sequences):
    batch = Values()
    batch.token, batch.pos, batch.n_seq_id, batch.logits = ([None] * tokens for _ in range(4))
    batch.seq_id = [[None] * sequences for _ in range(tokens)]
    return batch

def llama_decode(context, batch):
    return 0 if batch.n_tokens and min(batch.token[: batch.n_tokens]) >= 0 else -1

def llama_get_logits_ith(context, index):
    return ctypes.cast(LOGITS, ctypes.POINTER(ctypes.c_float))
"""


def beside_llama(*options: str | Path, only: Sequence[str] = ("prefill", "decode")) -> subprocess.CompletedProcess[str]:
    short = [
        "--rounds",
        "1",
        "--prompt",
        "16",
        "--tokens",
        "3",
        "--threads",
        "1",
        "--settle-s",
        "0",
        "--read-gb",
        "0.01",
    ]
    short += ["--sequences", "3", "--their-prompt", "4", "--their-tokens", "2", "--start-rounds", "1"]
    short += ["--only", *only]
    return subprocess.run(
        [sys.executable, "-P", BENCHMARKS / "beside_llama.py", *short, *options],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{BENCHMARKS}:{BENCHMARKS.parent / 'support'}"},
        capture_output=True,
        text=True,
        timeout=100,
    )


def interpreter(folder: Path, library: str) -> Path:
    """One that finds `library` under the name llama_cpp."""
    (folder / "llama_cpp.py").write_text(library)
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.cluster
@pytest.mark.timeout(110)
def test_both_sides_are_measured(tiny_model: Path, tmp_path: Path) -> None:
    done = beside_llama("--model", tiny_model, "--llama-python", interpreter(tmp_path, FAKE_LIBRARY))
    assert done.returncode == 0, done.stderr
    assert "llama.cpp of llama-cpp-python 9.9: CPU : FAKE = 1." in done.stdout
    rows = [
        line.split(" | ")[1:4:2]
        for line in done.stdout.splitlines()
        if line.startswith(("| prefill, 16 |", "| decode, 3 |"))
    ]
    mesh = "2 workers of 1 thread, coordinator of 1 thread"
    assert rows == 2 * [
        ["no workers, 1 thread", "1 thread, repacked"],
        ["no workers, 1 thread", "1 thread, plain"],
        [mesh, "2 threads, repacked"],
        [mesh, "2 threads, plain"],
    ]
    assert "the greedy ids of expertmesh are the same in all answers" in done.stdout
    assert done.stderr.count("tokens/s") == 2 * (2 + 2 * 2)  # ours, and each layout with 1 and 2 threads
    assert "| decode, one process, 1 thread | GGUF in place | 1.25x llama.cpp (" in done.stdout
    assert "| decode, one process, 1 thread | GGUF in place | 0.9 of the bandwidth limit | 0." in done.stdout


@pytest.mark.cluster
@pytest.mark.timeout(110)
def test_several_at_once_and_starts_from_either_file(tiny_model: Path, tmp_path: Path) -> None:
    python = interpreter(tmp_path, FAKE_LIBRARY)
    files = ("--model", tiny_model, "--our-model", tiny_model)
    one = ("--workers", "0", "--llama", "plain")
    done = beside_llama(*files, *one, "--llama-python", python, only=["start", "many"])
    assert done.returncode == 0, done.stderr
    rows = [
        line.split(" | ")[:4:3]
        for line in done.stdout.splitlines()
        if line.startswith("| ") and " 3 x " in line and "plain" in line
    ]
    assert rows == [["| prefill, 3 x 4", "1 thread, plain"]] * 2 + [["| decode, 3 x 2", "1 thread, plain"]] * 2
    assert "| decode, 3 x 2 | no workers, 1 thread, pack | no workers, 1 thread | " in done.stdout
    starts = [line.split(" | ")[1] for line in done.stdout.splitlines() if line.startswith(("| expertmesh", "| llama"))]
    ours = ["processes, no workers", "command, no workers"]
    assert starts == [*ours, *(f"{way}, pack" for way in ours), "processes, no workers, plain"]


@pytest.mark.cluster
@pytest.mark.timeout(110)
def test_no_answer_begins_when_the_time_is_over(tiny_model: Path, tmp_path: Path) -> None:
    python = interpreter(tmp_path, FAKE_LIBRARY)
    done = beside_llama("--model", tiny_model, "--workers", "0", "--llama-python", python, "--within-s", "0")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tokens/s") == 1


@pytest.mark.cluster
@pytest.mark.timeout(110)
def test_without_llama_our_own_figures_are_measured(tiny_model: Path) -> None:
    if subprocess.run([sys.executable, "-P", "-c", "import llama_cpp"], capture_output=True).returncode == 0:
        pytest.skip("llama-cpp-python is installed here")
    done = beside_llama("--model", tiny_model, "--workers", "0")
    assert done.returncode == 0, done.stderr
    assert "llama.cpp not measured: not installed, see docs/comparison.md" in done.stdout
    assert done.stdout.count("| no workers, 1 thread | ") == 2
    assert done.stdout.count(" | not measured |  |  | ") == 2


@pytest.mark.cluster
@pytest.mark.timeout(110)
@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("raise ImportError('no such library')", "ImportError: no such library"),
        (FAKE_LIBRARY.replace("os.path.exists(path)", "False"), "error: llama.cpp cannot load "),
        (FAKE_LIBRARY.replace("0 if batch", "-3 if batch"), "error: llama_decode returned -3"),
    ],
)
def test_a_llama_that_fails_is_an_error_of_one_line(
    library: str, reason: str, tiny_model: Path, tmp_path: Path
) -> None:
    python = interpreter(tmp_path, library)
    done = beside_llama("--model", tiny_model, "--workers", "0", "--llama-python", python)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: llama.cpp (repacked) has ended: {reason}")


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    done = beside_llama("--model", tmp_path / "none.gguf")
    assert done.returncode == 2
    assert done.stderr == f"error: model file '{tmp_path / 'none.gguf'}' does not exist\n"


def test_an_interpreter_that_is_not_there(tiny_model: Path, tmp_path: Path) -> None:
    done = beside_llama("--model", tiny_model, "--workers", "0", "--llama-python", tmp_path / "none")
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path / 'none'} cannot be started: No such file or directory\n"
