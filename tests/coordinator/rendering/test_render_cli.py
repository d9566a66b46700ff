"""`expertmesh render` as a person meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import ROOT, run

LOCAL = ROOT / "configs" / "local-2.toml"
FORMS = {
    "systemd": [
        f"expertmesh-local-2{name}" for name in (".target", "-coordinator.service", "-box-0.service", "-box-1.service")
    ],
    "slurm": ["expertmesh-local-2.sbatch"],
    "kubernetes": ["expertmesh-local-2.yaml"],
}
MORE = {"kubernetes": ["--image", "x:1", "--claim", "models"]}


@pytest.mark.parametrize("form", FORMS)
def test_files_are_written_or_printed(form: str, tmp_path: Path) -> None:
    printed = run("render", form, LOCAL, *MORE.get(form, ()))
    assert (printed.returncode, printed.stderr) == (0, "")
    done = run("render", form, LOCAL, *MORE.get(form, ()), "-o", tmp_path / "made")
    paths = [tmp_path / "made" / name for name in FORMS[form]]
    assert (done.returncode, done.stdout, done.stderr) == (0, "".join(f"{path}\n" for path in paths), "")
    assert sorted(paths) == sorted((tmp_path / "made").iterdir())
    for path in paths:
        assert path.read_text() in printed.stdout


def test_a_bad_file_is_a_line_for_each_problem(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[coordinator]\nthreads = 0\n")
    done = run("render", "systemd", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(line.startswith("error: ") for line in done.stderr.splitlines())
    assert "threads" in done.stderr


PRINTED, NO_SPACES = "expected letters that can be printed", "expected letters that can be printed, and no spaces"


@pytest.mark.parametrize(
    ("form", "option", "value", "said"),
    [
        ("systemd", "--user", "", f"--user is '', {NO_SPACES}"),
        ("systemd", "--user", "me\nExecStart=/bin/sh", f"--user is 'me\\nExecStart=/bin/sh', {NO_SPACES}"),
        ("systemd", "--host", "", f"--host is '', {NO_SPACES}"),
        ("systemd", "--python", "", f"--python is '', {PRINTED}"),
        (
            "systemd",
            "--python",
            "venv/bin/python",
            "--python is venv/bin/python, expected a whole path, or a name that",
        ),
        ("slurm", "--python", "", f"--python is '', {PRINTED}"),
        ("kubernetes", "--image", "", f"--image is '', {NO_SPACES}"),
        ("kubernetes", "--claim", "my models", f"--claim is 'my models', {NO_SPACES}"),
    ],
)
def test_a_word_that_another_program_could_not_read_is_refused(form: str, option: str, value: str, said: str) -> None:
    done = run("render", form, LOCAL, *MORE.get(form, ()), option, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {said}")
