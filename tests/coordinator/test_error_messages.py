"""What a person is told who gets a command line wrong: every message, whole.

Prompts, cluster files and models that are wrong have tables of their own, in test_prompt_errors.py,
test_cluster_file_errors.py and test_model_errors.py; requests on the wire, in test_error_requests.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import Rows, check_refused, fill

from coordinator.demo import demo_model

pytestmark = pytest.mark.timeout(60)

DEMO = str(demo_model())
LONG = "x" * 300
ENDPOINTS = (
    "expected tcp://127.0.0.1:PORT, tcp://localhost:PORT, tcp://[::1]:PORT or ipc://@NAME. Another address needs keys, "
    "without which nothing on the wire is encrypted: make them by `expertmesh keys new FOLDER`, and give them by "
    '--keys FOLDER, or by path = "FOLDER" under [keys] in the cluster file; on another machine, by --keys FILE'
)
NO_KEYS = "`expertmesh keys new FOLDER` makes keys"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are wrong, and a pipe that nobody writes to."""
    return fill(tmp_path_factory.mktemp("wrong"))


COMMAND_LINES: Rows = {
    "no such command": ("generat x", "No such command 'generat'."),
    "no such option": ("generate --worker 2 x", "No such option '--worker'. Did you mean '--workers'?"),
    "two prompts by accident": ("generate x y", "Got unexpected extra argument (y)"),
    "up without a file": ("up", "Missing argument 'CONFIG'."),
    "up with more than all audited": (
        "up --audit 1.5 {folder}/good.toml",
        "--audit is 1.5, expected a number from 0 to 1",
    ),
    "up with no number audited": ("up --audit nan {folder}/good.toml", "--audit is nan, expected a number from 0 to 1"),
    "status of a name": ("status box-0", f"endpoint 'box-0': {ENDPOINTS}"),
    "status of another machine": ("status tcp://10.0.0.1:7600", f"endpoint 'tcp://10.0.0.1:7600': {ENDPOINTS}"),
    "status of any port": ("status tcp://127.0.0.1:*", "endpoint 'tcp://127.0.0.1:*': a port from 1 to 65535 expected"),
    "status with a key that others can read": (
        "status tcp://10.0.0.1:7600 --keys {folder}/open.key",
        "keys: {folder}/open.key: others may read it, mode 0644 found, 0600 expected: chmod 600 {folder}/open.key",
    ),
    "status with a key that is none": (
        "status --keys {folder}/bad.key",
        'keys: {folder}/bad.key: no key file: a line secret = "40 characters" is expected',
    ),
    "status with a folder without keys": (
        "status --keys {folder}",
        f"keys: {{folder}}/client.key: No such file or directory; {NO_KEYS}",
    ),
    "status with two sets of keys": (
        "status --config {folder}/good.toml --keys {folder}/bad.key",
        "--keys and --config exclude each other: the file says which keys its cluster has",
    ),
    "worker with a key that is none": (
        "worker --model {demo} --connect tcp://10.0.0.1:7600 --keys {folder}/bad.key",
        'keys: {folder}/bad.key: no key file: a line secret = "40 characters" is expected',
    ),
    "worker at a bad name": (
        "worker --model {demo} --connect tcp://a_b:7600 --keys {folder}/bad.key",
        "endpoint 'tcp://a_b:7600': expected tcp://HOST:PORT, or tcp://127.0.0.1:PORT, tcp://localhost:PORT, "
        "tcp://[::1]:PORT or ipc://@NAME",
    ),
    "keys in a file": ("keys new {folder}/bad.key", "{folder}/bad.key: File exists"),
    "a key beside no coordinator's": (
        "keys add {folder} garage",
        f"keys: {{folder}}/server.key: No such file or directory; {NO_KEYS}",
    ),
    "a key with a path for a name": (
        "keys add {folder} ../garage",
        "a key cannot be called '../garage', expected 1 to 40 letters, digits, dots, dashes and underscores, beginning "
        "with a letter or digit",
    ),
    "status of a file": (
        "status {folder}/good.toml",
        "ENDPOINT is the path {folder}/good.toml: a cluster file is given as --config {folder}/good.toml",
    ),
    "status of two": (
        "status --config {folder}/good.toml ipc://@c",
        "ENDPOINT and --config exclude each other: the file says where its cluster listens",
    ),
    "status of a file that is not there": (
        "status --config {folder}/none.toml",
        "Invalid value for '--config': {folder}/none.toml: No such file or directory",
    ),
    "status at once": ("status --within-s 0", "--within-s is 0, expected a whole number from 1 to 3600"),
    "plan for no worker": (
        "plan {folder}/good.toml --simulate --workers 1,-1",
        "--workers is 1,-1, expected numbers from 0 to 256 with commas between",
    ),
    "plan on a slow line": (
        "plan {folder}/good.toml --simulate --mbit 0",
        "--mbit is 0, expected a number from 0.1 to 1e+06",
    ),
    "plan by no profile": (
        "plan {folder}/good.toml --simulate --profile {folder}/none",
        "Invalid value for '--profile': {folder}/none: No such file or directory",
    ),
    "worker without an endpoint": ("worker --model {demo}", "Missing option '--connect'."),
    "peer without a model": ("peer --connect ipc://@c", "Missing option '--model'."),
    "profile of nothing": ("profile show", "Missing argument 'FILE'."),
    "profile that is not there": (
        "profile show {folder}/none",
        "Invalid value for 'FILE': {folder}/none: No such file or directory",
    ),
    "profile that is none": (
        "profile show {folder}/latin1.txt",
        "{folder}/latin1.txt: not a profile that can be used: it begins with b'ok\\xe9', expected b'EXPMPROF'",
    ),
    "profile that is empty": (
        "profile merge {folder}/empty.txt -o {folder}/new",
        "{folder}/empty.txt: not a profile that can be used: it begins with b'', expected b'EXPMPROF'",
    ),
    "profiles of two models": (
        "profile merge {folder}/one.profile {folder}/other.profile -o {folder}/new",
        "{folder}/other.profile: not a profile that can be used: of the model ffffffffffffffff, expected "
        "0123456789abcdef",
    ),
    "merge without a name for the result": ("profile merge {folder}/one.profile", "Missing option '-o' / '--out'."),
    "merge into a folder that is not there": (
        "profile merge {folder}/one.profile -o {folder}/none/new",
        "--out: {folder}/none/new cannot be written: No such file or directory",
    ),
    "record of nothing": (
        "profile record {demo} -o {folder}/new",
        "a prompt is expected: -p TEXT or --file FILE",
    ),
    "record of an empty prompt": (
        "profile record {demo} -p '' -o {folder}/new",
        "the prompt is empty: one token at least is expected",
    ),
    "record into the model": (
        "profile record {demo} -p x -o {demo}",
        "--out: {demo} cannot be written: it is the model",
    ),
    "profile beside a cluster file": (
        "generate --config {folder}/good.toml --profile {folder}/new x",
        "--profile and --config exclude each other: the file decides that",
    ),
    "peer on a processor": (
        "peer --connect ipc://@c --model {demo} --device cpu",
        "--device is cpu, expected cuda:0 to cuda:63",
    ),
    "peer without a device": (
        "peer --connect ipc://@c --model {demo} --device=",
        "--device is empty, expected cuda:0 to cuda:63",
    ),
    "peer with bad memory": (
        "peer --connect ipc://@c --model {demo} --vram-gib much",
        "--vram-gib is much, expected auto or a number from 0 to 4096",
    ),
    "peer that dials nowhere": (
        "peer --connect x --model {demo}",
        f"endpoint 'x': {ENDPOINTS}",
    ),
    "peer with a long name": (
        f"peer --connect ipc://@c --model {{demo}} --name {LONG}",
        f"--name is '{LONG}', expected 1 to 64 printable characters",
    ),
    "no tokens": (
        "generate --max-tokens 0 x",
        "--max-tokens is 0, expected a whole number from 1 to 2147483647",
    ),
    "too many tokens for a number": (
        f"generate --max-tokens {'9' * 30} x",
        f"--max-tokens is {'9' * 30}, expected a whole number from 1 to 2147483647",
    ),
    "65 drafts": (
        "generate --drafts 65 x",
        "--drafts is 65, expected a whole number from 0 to 64",
    ),
    "65 workers": (
        "generate --workers 65 x",
        "--workers is 65, expected a whole number from 0 to 64",
    ),
    "-1 workers": (
        "generate --workers -1 x",
        "--workers is -1, expected a whole number from 0 to 64",
    ),
    "many workers": (
        "generate --workers many x",
        "--workers is many, expected a whole number from 0 to 64",
    ),
    "not a device": ("generate --device gpu x", "--device is gpu, expected cpu or cuda:0 to cuda:63"),
    "65 devices": ("generate --device cuda:64 x", "--device is cuda:64, expected cpu or cuda:0 to cuda:63"),
    "device of a file": (
        "generate --config {folder}/good.toml --device cuda:0 x",
        "--device and --config exclude each other: the file decides that",
    ),
    "memory of a file": (
        "generate --config {folder}/good.toml --vram-gib 1 x",
        "--vram-gib and --config exclude each other: the file decides that",
    ),
    "memory of no device": (
        "generate --vram-gib 4 x",
        "--vram-gib is memory of a GPU: it needs --device cuda:0, or another",
    ),
    "memory of the processor": (
        "logits --device cpu --vram-gib auto --ids 1 --out {folder}/x.npy",
        "--vram-gib is memory of a GPU: it needs --device cuda:0, or another",
    ),
    "negative memory": (
        "logits --device cuda:0 --vram-gib -1 --ids 1 --out {folder}/x.npy",
        "--vram-gib is -1, expected auto or a number from 0 to 4096",
    ),
    "memory without a number": (
        "generate --device cuda:0 --vram-gib nan x",
        "--vram-gib is nan, expected auto or a number from 0 to 4096",
    ),
    "no threads": (
        "generate --threads 0 x",
        "--threads is 0, expected a whole number from 1 to 512",
    ),
    "100000 threads": (
        "generate --threads 100000 x",
        "--threads is 100000, expected a whole number from 1 to 512",
    ),
    "empty chunks": (
        "generate --chunk 0 x",
        "--chunk is 0, expected a whole number from 1 to 512",
    ),
    "unknown cache": ("generate --kv q8 x", "Invalid value for '--kv': 'q8' is not one of 'f16', 'f32'."),
    "temperature is no number": (
        "generate --temperature hot x",
        "Invalid value for '--temperature': 'hot' is not a valid float.",
    ),
    "settings out of range": (
        "generate --temperature nan --top-k -1 --top-p 0 --min-p 1.5 --repeat-penalty inf --repeat-window -2 --seed -1 "
        "x",
        "--temperature is nan, expected a finite number from 0\n"
        "--top-k is -1, expected a whole number from 0 to 9223372036854775807\n"
        "--top-p is 0.0, expected a number over 0 and up to 1\n"
        "--min-p is 1.5, expected a number from 0 to 1\n"
        "--repeat-penalty is inf, expected a finite number over 0\n"
        "--repeat-window is -2, expected a whole number from 0 to 9223372036854775807\n"
        "--seed is -1, expected a whole number from 0 to 9223372036854775807",
    ),
    "infinite temperature": (
        "generate --temperature inf x",
        "--temperature is inf, expected a finite number from 0",
    ),
    "seed of 64 bits": (
        f"generate --seed {2**63} x",
        f"--seed is {2**63}, expected a whole number from 0 to {2**63 - 1}",
    ),
    "empty stop string": ("generate --stop '' x", "a stop string is empty: some text is expected"),
    "stop string of bytes": (
        "generate --stop '\udcff' x",
        "a stop string is not UTF-8: character 0 is '\\udcff'",
    ),
    "a file and what it decides": (
        "generate --config {folder}/good.toml --workers 1 x",
        "--workers and --config exclude each other: the file decides that",
    ),
    "worker elsewhere": (
        "worker --model {demo} --connect tcp://10.0.0.1:7600",
        f"endpoint 'tcp://10.0.0.1:7600': {ENDPOINTS}",
    ),
    "worker without a port": (
        "worker --model {demo} --connect tcp://127.0.0.1",
        f"endpoint 'tcp://127.0.0.1': {ENDPOINTS}",
    ),
    "worker at any port": (
        "worker --model {demo} --connect tcp://127.0.0.1:*",
        "endpoint 'tcp://127.0.0.1:*': a port from 1 to 65535 expected",
    ),
    "worker at no port": (
        "worker --model {demo} --connect tcp://127.0.0.1:99999",
        "endpoint 'tcp://127.0.0.1:99999': port 99999 found, at most 65535 expected",
    ),
    "worker without a name": (
        "worker --model {demo} --connect ipc://@x --name ''",
        "--name is '', expected 1 to 64 printable characters",
    ),
    "worker with two lines of a name": (
        "worker --model {demo} --connect ipc://@x --name 'a\nb'",
        "--name is 'a\\nb', expected 1 to 64 printable characters",
    ),
    "worker with a long name": (
        f"worker --model {DEMO} --connect ipc://@x --name {'n' * 65}",
        f"--name is '{'n' * 65}', expected 1 to 64 printable characters",
    ),
    "worker with no patience": (
        "worker --model {demo} --connect ipc://@x --orphan-s 0",
        "--orphan-s is 0, expected a whole number from 1 to 1000000",
    ),
}


@pytest.mark.parametrize(("command", "error"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_command_lines(command: str, error: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_refused(command, error, folder, capfd)
