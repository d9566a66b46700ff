"""Tests and benchmarks on a machine with a GPU that has Python and cupy, and need not reach any other.

    python tests/gpu/on_gpu_machine.py --wheels DIR --tests
    python tests/gpu/on_gpu_machine.py --wheels DIR --benchmarks kernels model --models /dev/shm

Installs the wheels of DIR in a temporary folder, builds the native module, runs what is asked for (everything, if
nothing is), each step under a time limit, and after each step writes its section of docs/gpu-results.md. With
--installed the interpreter's own environment is used as it is. Needs nothing but the standard library itself.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT, ROOT / "tests" / "support", ROOT / "tests" / "benchmarks"]
sys.path[:0] = map(str, SOURCES[1:])

from gpu_page import Origin, Ran, of_tests, put, section  # noqa: E402 # its folder is known only now

BUILD = ROOT / "build" / "gpu-machine"
SPEED = "tests/benchmarks/gpu_speed.py"
TITLES = {
    "tests": "Tests",
    "kernels": "Kernels",
    "model": "The model of 48 layers",
    "phases": "Where the time goes",
    "clusters": "Clusters",
}
LIMITS_S = {"tests": 420.0, "kernels": 180.0, "model": 240.0, "phases": 180.0, "clusters": 420.0}
"""Of a step, if there is so much time left."""
SETUP_S = 300.0
"""For the wheels, the native module and the model, each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What everything is run with."""

    env: dict[str, str]
    deadline: float
    """Of everything, on the monotonic clock."""

    def run(self, command: Sequence[str], limit_s: float) -> Ran:
        """Run a command from the tree's root, pass its output on, and end it when its time is over."""
        began = time.monotonic()
        limit_s = max(1.0, min(limit_s, self.deadline - began))
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
        lines: list[str] = []
        reader = threading.Thread(target=_pass_on, args=(process, lines), daemon=True)
        reader.start()
        code: int | None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        reader.join(10.0)
        return Ran(output="".join(lines), code=code, seconds=time.monotonic() - began)


def main() -> int:
    options = _parse()
    steps = _steps(options)
    deadline = time.monotonic() + options.within_s
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(env=_environment(Path(folder), options), deadline=deadline)
        if not options.installed and (problem := _install(machine, Path(folder), options.wheels)):
            sys.stderr.write(f"error: {problem}\n")
            return 2
        facts = _facts(machine)
        sys.stderr.write(f"{facts}\n")
        model = None
        failed = []
        for step in steps:
            if step not in ("tests", "kernels") and model is None:
                model = _model(machine, options, Path(folder))
            command = _command(step, model, options)
            origin = Origin(at=datetime.now(UTC), commit=options.commit, machine=facts, command=shlex.join(command))
            ran = _skipped(machine) or machine.run([sys.executable, *command[1:]], LIMITS_S[step])
            body = of_tests(ran) if step == "tests" else ran.output
            _write(options.page, TITLES[step], section(origin, ran, body))
            sys.stderr.write(f"{step}: {ran.seconds:.0f} s, exit code {ran.code}\n")
            failed += [step] if ran.code != 0 else []
    sys.stderr.write(f"failed: {', '.join(failed) or 'nothing'}\n")
    return 1 if failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    benchmarks = [step for step in TITLES if step != "tests"]
    add("--tests", action="store_true", help="run tests/gpu")
    add("--benchmarks", nargs="*", choices=benchmarks, metavar="NAME", help=f"all, or some of: {', '.join(benchmarks)}")
    wheels = os.environ.get("EXPERTMESH_WHEELS")
    add("--wheels", type=Path, default=wheels, help="folder of wheels to install; EXPERTMESH_WHEELS by default")
    add("--installed", action="store_true", help="install and build nothing")
    add("--models", type=Path, help="folder where the model is made, unless it is there; it then stays (18 GB)")
    add("--page", type=Path, default=ROOT / "docs" / "gpu-results.md")
    add("--commit", default=_commit(), help="what the page says")
    add("--within-s", type=float, default=570.0, help="for everything together; what is under way then is ended")
    add("--pytest-options", default="", help='more options of pytest, as in "-x -k clusters"')
    add("--speed-options", default="", help='more options of gpu_speed.py, as in "--tokens 32 --rounds 1"')
    return parser.parse_args()


def _steps(options: argparse.Namespace) -> list[str]:
    if not options.tests and options.benchmarks is None:
        return list(TITLES)
    chosen = {"tests"} if options.tests else set()
    if options.benchmarks is not None:
        chosen |= set(options.benchmarks) or TITLES.keys() - {"tests"}
    return [step for step in TITLES if step in chosen]


def _environment(folder: Path, options: argparse.Namespace) -> dict[str, str]:
    paths = [*SOURCES] if options.installed else [*SOURCES, folder / "site"]
    known = {"EXPERTMESH_TEST_GPU": "1", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    known["PYTHONPATH"] = os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
    known["CUPY_CACHE_DIR"] = os.environ.get("CUPY_CACHE_DIR") or str(folder / "kernels")
    return {**os.environ, **known}


def _install(machine: Machine, folder: Path, wheels: Path | None) -> str | None:
    """Wheels and the native module; what is wrong, if anything is."""
    python = sys.executable
    if wheels is not None:
        files = sorted(map(str, wheels.glob("*.whl")))
        if not files:
            return f"{wheels}: no wheels found, some expected"
        pip = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir"]
        if machine.run([*pip, "--target", str(folder / "site"), *files], SETUP_S).code != 0:
            return "the wheels cannot be installed"
    found = machine.run([python, "-m", "nanobind", "--cmake_dir"], 60.0)
    if found.code != 0:
        return "nanobind is missing, which the native module is built with"
    configure = ["cmake", "-S", "native", "-B", str(BUILD), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    for command in ([*configure, f"-Dnanobind_DIR={found.output.strip()}"], ["cmake", "--build", str(BUILD)]):
        if machine.run(command, SETUP_S).code != 0:
            return "the native module cannot be built"
    for module in BUILD.glob("_kernels*.so"):
        shutil.copy(module, ROOT / "native")
    return None


def _model(machine: Machine, options: argparse.Namespace, folder: Path) -> Path:
    path: Path = (options.models or folder) / "wide-48.gguf"
    if not path.exists():
        ran = machine.run([sys.executable, "tests/support/moe_models.py", str(path), "--preset", "wide-48"], SETUP_S)
        sys.stderr.write(f"{path}: made in {ran.seconds:.1f} s, exit code {ran.code}\n")
    return path


def _command(step: str, model: Path | None, options: argparse.Namespace) -> list[str]:
    """As the page shows it."""
    if step == "tests":
        return [
            "python",
            "-P",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/gpu",
            *shlex.split(options.pytest_options),
        ]
    command = ["python", "-P", SPEED, step, *shlex.split(options.speed_options)]
    return command if model is None or step == "kernels" else [*command, "--model", str(model)]


def _skipped(machine: Machine) -> Ran | None:
    """If no time is left for another step."""
    return Ran(output="Not begun.", code=None, seconds=0.0) if time.monotonic() > machine.deadline - 5 else None


def _facts(machine: Machine) -> str:
    """The machine in words: GPU, driver, cupy, processor."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    gpu = machine.run(query, 30.0).output.strip() if shutil.which("nvidia-smi") else "no nvidia-smi"
    asked = "import cupy, native, platform; print(cupy.__version__, native.isa(), platform.python_version())"
    words = machine.run([sys.executable, "-P", "-c", asked], 60.0).output.split()
    cupy, isa, python = words if len(words) == 3 else ("missing", "?", "?")
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = models[0].split(":", 1)[1].strip() if models else "an unknown processor"
    return f"{gpu}; cupy {cupy}, Python {python}; {os.cpu_count()} CPUs of {processor}, {isa}"


def _commit() -> str:
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return found.stdout.strip() or "unknown"


def _write(page: Path, title: str, text: str) -> None:
    before = page.read_text() if page.exists() else ""
    draft = page.with_name(f".{page.name}.{os.getpid()}")
    draft.write_text(put(before, title, text))
    draft.replace(page)


def _pass_on(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        sys.stderr.write(line)
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
