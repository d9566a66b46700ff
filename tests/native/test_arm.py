"""The scalar kernels on 64-bit Arm give the bits that they give here (cross compiler and user emulation needed)."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "native" / "src"
FLAGS = [
    "-std=c++20",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-static",
    "-Wall",
    "-Wextra",
    "-Werror",
]
COMPILES_WITHIN_S = 400
"""Seconds; a quarter of a minute on a machine that has nothing else to do."""
ARM_COMPILER = shutil.which("aarch64-linux-gnu-g++")
ARM_EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


def digests(compiler: str, folder: Path, runner: list[str]) -> str:
    program = folder / "digest_kernels"
    sources = [str(HERE / "digest_kernels.cpp"), str(SOURCES / "isa_scalar.cpp")]
    subprocess.run([compiler, *FLAGS, "-o", str(program), *sources], check=True, timeout=COMPILES_WITHIN_S)
    return subprocess.run([*runner, str(program)], check=True, timeout=COMPILES_WITHIN_S, capture_output=True, text=True).stdout


@pytest.mark.skipif(not (ARM_COMPILER and ARM_EMULATOR), reason="needs aarch64-linux-gnu-g++ and qemu-aarch64")
@pytest.mark.timeout(900)
def test_arm_gives_the_same_bits(tmp_path: Path) -> None:
    assert ARM_COMPILER
    assert ARM_EMULATOR
    (tmp_path / "arm").mkdir()
    here = digests(shutil.which("c++") or "g++", tmp_path, [])
    assert here.count("\n") == 33
    assert digests(ARM_COMPILER, tmp_path / "arm", [ARM_EMULATOR]) == here


@pytest.mark.skipif(not ARM_COMPILER, reason="needs aarch64-linux-gnu-g++")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "source",
    ["pool.cpp", "guard.cpp", "dispatch.cpp", "experts.cpp", "attention.cpp", "kv_cache.cpp", "weights.cpp"],
)
def test_sources_that_know_the_processor_compile_for_arm(source: str) -> None:
    import nanobind

    assert ARM_COMPILER
    includes = [f"-I{nanobind.include_dir()}", f"-I{sysconfig.get_paths()['include']}"]
    command = [ARM_COMPILER, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", *includes, str(SOURCES / source)]
    subprocess.run(command, check=True, timeout=COMPILES_WITHIN_S)
