"""What each process loads before it begins: several start at once on the same cores, so each library counts."""

from __future__ import annotations

import subprocess
import sys

import pytest

NAMES = "import sys; print(*sorted(sys.modules))"

COMMAND_LINE = f"""
import subprocess
class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        {NAMES}
        raise OSError("seen enough")
subprocess.Popen = Popen
from coordinator.cli import run
assert run(["generate", "--workers", "1", "--model", {__file__!r}, "x"]) == 2
"""
"""Lists what is loaded when the first child is about to be started."""


def loaded_by(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    return set(done.stdout.split())


def libraries(modules: set[str]) -> set[str]:
    """Top-level packages that are neither Python's own nor private."""
    top = {name.split(".")[0] for name in modules} - sys.stdlib_module_names - {"cython_runtime", "sitecustomize"}
    return {name for name in top if not name.startswith("_")}


@pytest.mark.parametrize(
    ("module", "ours"),
    [
        ("expert_worker.main", {"expert_worker", "native", "protocol"}),
        ("expert_worker.lookahead.main", {"expert_worker", "native", "protocol"}),
        ("peer_gpu.main", {"peer_gpu", "native", "protocol"}),
        ("coordinator.main", {"coordinator", "expert_worker", "peer_gpu", "native", "protocol"}),
    ],
)
def test_a_process_loads_what_it_computes_and_talks_with_and_no_more(module: str, ours: set[str]) -> None:
    modules = loaded_by(f"import {module}; {NAMES}")
    assert libraries(modules) == ours | {"msgpack", "numpy", "zmq"}
    assert not modules & {"asyncio", "multiprocessing", "subprocess", "ssl", "tempfile", "tomllib", "urllib.request"}


def test_a_coordinator_without_gpu_loads_neither_a_gpu_s_dense_half_nor_what_is_of_the_command_line() -> None:
    modules = loaded_by(f"import coordinator.main; {NAMES}")
    unwanted = ("cli", "client", "cluster_file", "dense_cuda", "launcher", "tokenizer", "toml_reader", "toml_values")
    assert not modules & {f"coordinator.{name}" for name in unwanted}


def test_a_worker_loads_no_gpu_code() -> None:
    assert not [name for name in loaded_by(f"import expert_worker.main; {NAMES}") if name.startswith("native.cuda")]


def test_the_command_line_starts_processes_before_it_loads_libraries() -> None:
    modules = loaded_by(COMMAND_LINE)
    assert libraries(modules) == {"click", "coordinator", "native", "protocol"}
    assert not modules & {"tempfile", "tomllib"}


def test_what_only_shows_an_answer_is_loaded_after_its_first_token() -> None:
    shown = "view.prefilled(3, 3); view.text('x')"
    program = f"from coordinator.cli.answer_view import AnswerView; view = AnswerView(show_text=True); {shown}; {NAMES}"
    assert "rich" not in libraries(loaded_by(program))
