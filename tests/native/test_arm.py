"""Kernels on 64-bit Arm give the bits that they give here (cross compiler and user emulation needed)."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
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
    "-Wall",
    "-Wextra",
    "-Werror",
]
WITHIN_S = 600
"""For one run of a compiler; a quarter of a minute if nobody else wants the processor."""
ARM_COMPILER = shutil.which("aarch64-linux-gnu-g++")
ARM_EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

Run = Callable[..., list[str]]
"""Lines of the digest program for its arguments."""


def build(compiler: str, folder: Path, sources: dict[str, list[str]], flags: list[str]) -> Path:
    """The digest program of these sources, each with flags of its own."""
    objects = [folder / f"{Path(source).stem}.o" for source in sources]
    commands = [
        [compiler, *FLAGS, *flags, *own, "-c", "-o", str(target), str(source)]
        for (source, own), target in zip(sources.items(), objects, strict=True)
    ]
    for compiling in [subprocess.Popen(command) for command in commands]:
        assert compiling.wait(WITHIN_S) == 0
    program = folder / "digest_kernels"
    subprocess.run([compiler, "-static", "-o", str(program), *map(str, objects)], check=True, timeout=WITHIN_S)
    return program


def sources(*names: str) -> dict[str, list[str]]:
    return {str(HERE / "digest_kernels.cpp"): []} | {str(SOURCES / name): [] for name in names}


def lines(command: list[str]) -> list[str]:
    return subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def digests_here(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Those of the scalar kernels on this machine."""
    compiler = shutil.which("c++") or "g++"
    program = build(
        compiler, tmp_path_factory.mktemp("here"), sources("isa_scalar.cpp", "runnable.cpp", "inputs.cpp"), []
    )
    digests = lines([str(program), "scalar"])
    assert len(digests) == len(set(digests)) == 35
    return digests


@pytest.fixture(scope="module")
def on_arm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs the digest program on an emulated processor."""
    if not (ARM_COMPILER and ARM_EMULATOR):
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64")
    with_neon = sources("isa_scalar.cpp", "runnable.cpp", "inputs.cpp") | {str(SOURCES / "isa_neon.cpp"): NEON_FLAGS}
    program = build(ARM_COMPILER, tmp_path_factory.mktemp("arm"), with_neon, ["-DEXPERTMESH_NEON=1"])
    return lambda *arguments, cpu="max": lines([ARM_EMULATOR, "-cpu", cpu, str(program), *arguments])


NEON_FLAGS = ["-march=armv8.2-a+dotprod"]


@pytest.mark.timeout(2000)
@pytest.mark.parametrize("isa", ["scalar", "neon"])
def test_arm_gives_the_same_bits(isa: str, on_arm: Run, digests_here: list[str]) -> None:
    assert on_arm(isa) == digests_here


@pytest.mark.timeout(2000)
def test_arm_without_dot_products_has_the_scalar_kernels(on_arm: Run, digests_here: list[str]) -> None:
    assert on_arm() == ["scalar", "neon"]
    assert on_arm(cpu="cortex-a53") == ["scalar"]
    assert on_arm("neon", cpu="cortex-a53") == []
    assert on_arm("scalar", cpu="cortex-a53") == digests_here


def test_the_build_compiles_neon_as_this_test_does() -> None:
    text = (HERE.parents[1] / "native" / "CMakeLists.txt").read_text()
    assert f'isa_neon.cpp PROPERTIES COMPILE_OPTIONS "{" ".join(NEON_FLAGS)}"' in text


@pytest.mark.skipif(not ARM_COMPILER, reason="needs aarch64-linux-gnu-g++")
@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    "source",
    [
        "pool.cpp",
        "guard.cpp",
        "dispatch.cpp",
        "experts.cpp",
        "attention.cpp",
        "kv_cache.cpp",
        "weights.cpp",
        "packed.cpp",
        "elementwise.cpp",
    ],
)
def test_sources_that_know_the_processor_compile_for_arm(source: str) -> None:
    import nanobind

    assert ARM_COMPILER
    includes = [f"-I{nanobind.include_dir()}", f"-I{sysconfig.get_paths()['include']}"]
    command = [
        ARM_COMPILER,
        "-std=c++20",
        "-DEXPERTMESH_NEON=1",
        "-fvisibility=hidden",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    subprocess.run([*command, *includes, str(SOURCES / source)], check=True, timeout=WITHIN_S)
