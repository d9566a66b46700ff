"""`expertmesh profile` and `generate --profile` as a person meets them: real processes, the demo model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import run

from coordinator.profile import Profile
from coordinator.profile_file import read_profile, write_profile

pytestmark = pytest.mark.timeout(120)

LAYERS, EXPERTS, USED = 6, 16, 4
"""Of the demo model."""
MARK = "0123456789abcdef"


def test_a_recording_has_every_row_of_prompts_and_answers(demo_model: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("import os")
    one, two = tmp_path / "one.profile", tmp_path / "two.profile"
    done = run("profile", "record", demo_model, "--file", tmp_path / "prompt.txt", "--max-tokens", 9, "-o", one)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"{one}: 10 rows, ")
    found = read_profile(one)
    assert (found.rows, found.counts.shape, found.uses) == (2 + 8, (LAYERS, EXPERTS), 10.0 * LAYERS * USED)
    np.testing.assert_array_equal(found.counts.sum(axis=1), 10 * USED)
    run("profile", "record", demo_model, "-p", "import os", "-p", "import os", "--max-tokens", 9, "-o", two)
    np.testing.assert_array_equal(read_profile(two).counts, 2 * found.counts)


def test_a_cluster_counts_what_one_process_does_and_goes_on_with_it(demo_model: Path, tmp_path: Path) -> None:
    alone, counted = tmp_path / "alone.profile", tmp_path / "counted.profile"
    run("profile", "record", demo_model, "-p", "import os", "--max-tokens", 12, "-o", alone)
    options = ("--workers", 2, "--max-tokens", 12, "--ignore-eos", "--json", "import os")
    plain = json.loads(run("generate", *options).stdout)
    for times in (1, 2):
        report = json.loads(run("generate", "--profile", counted, *options).stdout)
        assert report["sha256_logits"] == plain["sha256_logits"], "a ranking changes no bit"
        found = read_profile(counted, read_profile(alone))
        assert found.rows == times * (2 + 11)
        np.testing.assert_array_equal(found.counts, times * read_profile(alone).counts)


def test_a_recording_replaces_nothing_but_with_force(demo_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.profile"
    out.write_bytes(b"days of counting")
    done = run("profile", "record", demo_model, "-p", "import os", "--max-tokens", 0, "-o", out)
    error = f"error: --out: {out} cannot be written: it is there already, and replaced with --force alone\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)
    assert out.read_bytes() == b"days of counting"
    assert not run(
        "profile", "record", demo_model, "-p", "import os", "--max-tokens", 0, "-o", out, "--force"
    ).returncode
    assert read_profile(out).rows == 2


def test_merged_profiles_are_the_sum(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for number, path in enumerate(paths, 1):
        write_profile(Profile(fingerprint=MARK, rows=number, counts=np.full((2, 3), number / 2)), path, option="-o")
    out = tmp_path / "sum"
    done = run("profile", "merge", *paths, "-o", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{out}: 6 rows, 6 experts of 6 have 90 % of the uses\n"
    found = read_profile(out)
    assert (found.rows, found.counts.tolist()) == (6, [[3.0] * 3] * 2)


SHOWN = """\
profile    {path}, of the model 0123456789abcdef
rows       50 seen; a use weighs half 131072 rows later
experts    3 layers of 4; 5 of them were used, in 2 layers
hottest    2 of layer 1 (80.0% of its uses), 3 of layer 2 (50.0% of its uses), 0 of layer 2 (30.0% of its uses), \
0 of layer 1 (20.0% of its uses), 1 of layer 2 (20.0% of its uses)

uses  experts  of all
50 %        2   25.0%
80 %        3   37.5%
90 %        4   50.0%
95 %        5   62.5%

layer  used  for 50 %  for 80 %  for 90 %  for 95 %  hottest  its share
    1     2         1         1         2         2        2      80.0%
    2     3         1         2         3         3        3      50.0%
"""


def test_what_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.profile"
    counts = np.array([[0, 0, 0, 0], [20, 0, 80, 0], [30, 20, 0, 50]], np.float64)
    write_profile(Profile(fingerprint=MARK, rows=50, counts=counts), path, option="-o")
    done = run("profile", "show", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, SHOWN.format(path=path), "")
    shown = json.loads(run("profile", "show", path, "--json").stdout)
    assert shown["hottest"][0] == [1, 2, 0.8]
    assert (shown["rows"], shown["layers"], shown["experts"], shown["used"]) == (50, 3, 4, 5)
    assert shown["experts_for"] == {"50": 2, "80": 3, "90": 4, "95": 5}
    assert [layer["layer"] for layer in shown["by_layer"]] == [1, 2]


def test_a_profile_of_nothing_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.profile"
    write_profile(Profile(fingerprint=MARK, rows=0, counts=np.zeros((3, 4))), path, option="-o")
    done = run("profile", "show", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[2] == "experts    3 layers of 4; 0 of them were used, in 0 layers"
    assert json.loads(run("profile", "show", path, "--json").stdout)["by_layer"] == []


def test_another_models_profile_ends_a_cluster_before_it_begins_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.profile"
    write_profile(Profile(fingerprint=MARK, rows=1, counts=np.ones((2, 3))), path, option="-o")
    before = path.read_bytes()
    done = run("generate", "--profile", path, "--workers", 1, "import os")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}: not a profile that can be used: of the model {MARK}, expected " in done.stderr
    assert path.read_bytes() == before
