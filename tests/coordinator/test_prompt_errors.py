"""What a person is told who gets a prompt wrong, or what is to be made of it: every message, whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import Rows, check_refused, fill

from coordinator.demo import demo_model

pytestmark = pytest.mark.timeout(60)

DEMO = str(demo_model())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are wrong, and a pipe that nobody writes to."""
    return fill(tmp_path_factory.mktemp("wrong"))


PROMPTS: Rows = {
    "none": (
        "generate --dry-run",
        "one of PROMPT, --prompt-file and --prompt-ids is expected, found none",
    ),
    "two": (
        "generate --dry-run --prompt-ids 1 x",
        "one of PROMPT, --prompt-file and --prompt-ids is expected, found PROMPT and --prompt-ids",
    ),
    "empty": ("generate --dry-run ''", "the prompt is empty: one token at least is expected"),
    "empty file": (
        "generate --dry-run --prompt-file {folder}/empty.txt",
        "the prompt is empty: one token at least is expected",
    ),
    "byte order mark alone": (
        "generate --dry-run --prompt-file {folder}/mark.txt",
        "the prompt is empty: one token at least is expected",
    ),
    "bytes": ("generate --dry-run ab\udcff", "the prompt is not UTF-8: character 2 is '\\udcff'"),
    "file of bytes": (
        "generate --dry-run --prompt-file {folder}/latin1.txt",
        "{folder}/latin1.txt: byte 2 is not UTF-8 text",
    ),
    "no such file": (
        "generate --dry-run --prompt-file {folder}/none.txt",
        "{folder}/none.txt: No such file or directory",
    ),
    "file called by bytes": (
        "generate --dry-run --prompt-file {folder}/no\udcff.txt",
        "{folder}/no\\udcff.txt: No such file or directory",
    ),
    "folder": ("generate --dry-run --prompt-file {folder}", "{folder}: Is a directory"),
    "endless file": (
        "generate --dry-run --prompt-file /dev/zero",
        "/dev/zero: more than 67108864 bytes, which no model's context can hold",
    ),
    "no ids": (
        "generate --dry-run --prompt-ids ''",
        "--prompt-ids: '' is not a token id; numbers like 1,2,3 are expected",
    ),
    "words for ids": (
        "generate --dry-run --prompt-ids 1,two",
        "--prompt-ids: 'two' is not a token id; numbers like 1,2,3 are expected",
    ),
    "a number without end": (
        f"generate --dry-run --prompt-ids {'9' * 5000}",
        "--prompt-ids: '999999999999...9999999999999' is not a token id; numbers like 1,2,3 are expected",
    ),
    "a file of ids that is not there": (
        "generate --dry-run --prompt-ids @{folder}/none.txt",
        "{folder}/none.txt: No such file or directory",
    ),
    "a file of ids that is something else": (
        "generate --dry-run --prompt-ids @{folder}/latin1.txt",
        "{folder}/latin1.txt: byte 2 is not UTF-8 text",
    ),
    "a file of ids that never ends": (
        "generate --dry-run --prompt-ids @/dev/zero",
        "/dev/zero: more than 67108864 bytes, which no model's context can hold",
    ),
    "digits of other scripts": (
        "generate --dry-run --prompt-ids '²'",
        "--prompt-ids: '²' is not a token id; numbers like 1,2,3 are expected",
    ),
    "negative id": (
        "generate --dry-run --prompt-ids -1",
        "--prompt-ids: '-1' is not a token id; numbers like 1,2,3 are expected",
    ),
    "huge id": (
        "generate --dry-run --prompt-ids 99999999999",
        "--prompt-ids: '99999999999' is not a token id; numbers like 1,2,3 are expected",
    ),
    "id out of the vocabulary": (
        "generate --dry-run --prompt-ids 5,4096",
        "token id 4096 at index 1 is not in the vocabulary: expected 0..4095",
    ),
    "answer longer than the context": (
        "generate --dry-run --max-tokens 2048 x",
        "1 prompt token and 2048 new ones need 2049 positions, the model's context has 2048",
    ),
    "prompt longer than the context": (
        f"generate --dry-run --max-tokens 1 --prompt-ids {','.join(['7'] * 3000)}",
        "3000 prompt tokens and 1 new one need 3001 positions, the model's context has 2048",
    ),
    "prompt far longer than the context": (
        f"generate --dry-run {'x' * 10**5}",
        "the prompt's 100000 characters are 2084 tokens at least, the model's context has 2048 positions",
    ),
    "logits of no ids": (
        "logits --ids '1;2' --out {folder}/x.npy",
        "--ids: '1;2' is not a token id; numbers like 1,2,3 are expected",
    ),
    "logits of an unknown id": (
        "logits --ids 1,4096 --out {folder}/x.npy",
        "token id 4096 at index 1 is not in the vocabulary: expected 0..4095",
    ),
    "logits to nowhere": (
        "logits --ids 1 --out ''",
        "--out: an empty path cannot be written: No such file or directory",
    ),
    "logits to a folder": (
        "logits --ids 1 --out {folder}",
        "--out: {folder} cannot be written: what is there is not a file",
    ),
    "logits to no folder": (
        "logits --ids 1 --out {folder}/no/x.npy",
        "--out: {folder}/no/x.npy cannot be written: No such file or directory",
    ),
    "logits in place of the model": (
        "logits --ids 1 --out {demo}",
        f"--out: {DEMO} cannot be written: it is the model",
    ),
}


@pytest.mark.parametrize(("command", "error"), PROMPTS.values(), ids=PROMPTS)
def test_prompts(command: str, error: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_refused(command, error, folder, capfd)
