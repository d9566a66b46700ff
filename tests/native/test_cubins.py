"""Compiled kernels on disk, with a compiler that only counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from native.cuda import DeviceError, cubins, source


class Compiler:
    """In place of cupy's binding of NVIDIA's compiler."""

    class NVRTCError(RuntimeError):
        pass

    def __init__(self, version: tuple[int, int] = (12, 9), broken: bool = False) -> None:
        self.version = version
        self.broken = broken
        self.compiled: list[tuple[str, tuple[str, ...]]] = []

    def getVersion(self) -> tuple[int, int]:
        return self.version

    def createProgram(self, text: str, name: str, headers: tuple[()], names: tuple[()]) -> str:
        assert "#include" not in text
        return name

    def compileProgram(self, program: str, options: tuple[str, ...]) -> None:
        if self.broken:
            raise self.NVRTCError("NVRTC_ERROR_COMPILATION")
        self.compiled.append((program, options))

    def getCUBIN(self, program: str) -> bytes:
        return f"code of {program}, {self.version}".encode()

    def getProgramLog(self, program: str) -> str:
        return "line 7: something is wrong"

    def destroyProgram(self, program: str) -> None:
        return


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    return tmp_path / "expertmesh"


def test_a_unit_is_compiled_once_for_each_kind_of_gpu_and_compiler() -> None:
    first, later = Compiler(), Compiler()
    code = cubins.cubin(first, "router", "sm_90")
    assert cubins.cubin(later, "router", "sm_90") == code
    assert later.compiled == []
    assert first.compiled == [("router.cu", (*source.OPTIONS, "--gpu-architecture=sm_90"))]
    cubins.cubin(later, "router", "sm_80")
    newer = Compiler(version=(13, 0))
    assert cubins.cubin(newer, "router", "sm_90") != code
    assert len(later.compiled) == len(newer.compiled) == 1


@pytest.mark.parametrize("damage", [b"", b"half", b"x" * 100])
def test_a_damaged_file_is_compiled_again(folder: Path, damage: bytes) -> None:
    code = cubins.cubin(Compiler(), "router", "sm_90")
    [file] = folder.iterdir()
    file.write_bytes(damage)
    again = Compiler()
    assert cubins.cubin(again, "router", "sm_90") == code
    assert len(again.compiled) == 1
    assert [one.name for one in folder.iterdir()] == [file.name]
    assert file.read_bytes().endswith(code)


def test_another_text_is_another_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cubins.cubin(Compiler(), "router", "sm_90")
    monkeypatch.setattr(cubins, "unit", lambda name: "// changed")
    compiler = Compiler()
    cubins.cubin(compiler, "router", "sm_90")
    assert len(compiler.compiled) == 1
    assert len(list(folder.iterdir())) == 2


def test_where_nothing_can_be_written_it_is_compiled_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file"))
    compiler = Compiler()
    for _ in range(2):
        assert cubins.cubin(compiler, "router", "sm_90").startswith(b"code of router.cu")
    assert len(compiler.compiled) == 2


def test_what_the_compiler_says_is_told(folder: Path) -> None:
    expected = r"router.cu cannot be compiled \(NVRTC_ERROR_COMPILATION\): line 7: something is wrong"
    with pytest.raises(DeviceError, match=expected):
        cubins.cubin(Compiler(broken=True), "router", "sm_90")
    assert not folder.exists()
