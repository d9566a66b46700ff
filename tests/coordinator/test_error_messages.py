"""What a person is told who gets a command line, a prompt or a cluster file wrong: every message, whole.

Models that are wrong have a table of their own, test_model_errors.py; requests on the wire, test_error_requests.py.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from refusals import Rows, check_refused

from coordinator.demo import demo_model
from coordinator.profile_file import MAGIC

pytestmark = pytest.mark.timeout(60)

DEMO = str(demo_model())
LONG = "x" * 300
ENDPOINTS = (
    "expected tcp://127.0.0.1:PORT, tcp://localhost:PORT, tcp://[::1]:PORT or ipc://@NAME. Another address needs keys, "
    "without which nothing on the wire is encrypted: make them by `expertmesh keys new FOLDER`, and give them by "
    '--keys FOLDER, or by path = "FOLDER" under [keys] in the cluster file; on another machine, by --keys FILE'
)
LISTENING = (
    "expected an address of this machine in numbers, such as tcp://0.0.0.0:PORT for all of them, or "
    "tcp://127.0.0.1:PORT, tcp://localhost:PORT, tcp://[::1]:PORT or ipc://@NAME"
)
NO_KEYS = "`expertmesh keys new FOLDER` makes keys"
KEY = "0" * 40
THREADS = "a whole number from 1 to 512 is expected"

FILES: dict[str, bytes] = {
    "latin1.txt": b"ok\xe9",
    "mark.txt": b"\xef\xbb\xbf",
    "empty.txt": b"",
    "bytes.toml": b"[model]\xff",
    "deep.toml": b"x = " + b"[" * 5000,
    "empty.toml": b"",
    "no-value.toml": b"[model]\npath = \n",
    "one.profile": MAGIC + struct.pack("<IIIIQ16sd", 1, 1, 1, 0, 0, b"0123456789abcdef", 0),
    "open.key": f'secret = "{KEY}"\ncoordinator = "{KEY}"\n'.encode(),
    "bad.key": b'secret = "hunter2"\n',
    "other.profile": MAGIC + struct.pack("<IIIIQ16sd", 1, 1, 1, 0, 0, b"f" * 16, 0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are wrong, and a pipe that nobody writes to."""
    folder = tmp_path_factory.mktemp("wrong")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    for name, text in CLUSTER_TEXTS.items():
        (folder / f"{name}.toml").write_text(text.replace("DEMO", DEMO).replace("FOLDER", str(folder)))
    os.mkfifo(folder / "pipe")
    return folder


# --- the command line -----------------------------------------------------------------------------------------------

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

# --- prompts --------------------------------------------------------------------------------------------------------

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

# --- cluster files --------------------------------------------------------------------------------------------------

MODEL = '[model]\npath = "DEMO"\n'
GROUP = '[[workers]]\nname = "box"\n'
PEER = '[[peers]]\nname = "gpu"\n'

CLUSTERS: dict[str, tuple[str, str]] = {
    "nothing": ("", "line 1: model: this section is missing"),
    "no path": ("[model]\n", "line 1: model: the key path is missing"),
    "model is no table": ("\nmodel = 3\n", "line 2: model: a table is expected: [model]"),
    "path is no text": ("[model]\npath = 3\n", "line 2: model.path: the path of a model is expected, found 3"),
    "path is empty": ('[model]\npath = ""\n', 'line 2: model.path: the path of a model is expected, found ""'),
    "path with a zero": (
        '[model]\npath = "a\\u0000b"\n',
        'line 2: model.path: the path of a model is expected, found "a\\u0000b"',
    ),
    "no such model": (
        '[model]\npath = "none"\n',
        "line 2: model.path: {folder}/none: No such file or directory",
    ),
    "no such home": (
        '[model]\npath = "~nobody-of-that-name/m.gguf"\n',
        "line 2: model.path: {folder}/~nobody-of-that-name/m.gguf: No such file or directory",
    ),
    "long path": (f'[model]\npath = "{LONG}"\n', f"line 2: model.path: {{folder}}/{LONG}: File name too long"),
    "pipe for a model": (
        '[model]\npath = "pipe"\n',
        "line 2: model.path: {folder}/pipe is neither a file nor a folder",
    ),
    "dotted key": (
        'model.path = "DEMO"\ncoordinator.kv = "q8"\n',
        'line 2: coordinator.kv: "f16" or "f32" is expected, found "q8"',
    ),
    "workers are no tables": (
        'model.path = "DEMO"\nworkers = 2\n',
        "line 2: workers: tables are expected: [[workers]]",
    ),
    "group without a name": (f"{MODEL}[[workers]]\ncount = 2\n", "line 3: workers: the key name is missing"),
    "bad name": (
        f'{MODEL}[[workers]]\nname = "a b"\n',
        'line 4: workers.name: a name of letters, digits, dots, dashes and underscores is expected, found "a b"',
    ),
    "two groups of one name": (MODEL + GROUP + GROUP, "line 6: workers.name: another group is called box too"),
    "65 workers": (
        f"{MODEL}{GROUP}count = 65\n",
        "line 5: workers.count: a whole number from 0 to 64 is expected, found 65",
    ),
    "-1 workers": (
        f"{MODEL}{GROUP}count = -1\n",
        "line 5: workers.count: a whole number from 0 to 64 is expected, found -1",
    ),
    "320 workers": (
        MODEL + "".join(f'[[workers]]\nname = "box-{group}"\ncount = 64\n' for group in "abcde"),
        "line 17: workers.count: 320 workers and peers in all up to here, 256 at most are expected",
    ),
    "peer without a name": (f"{MODEL}[[peers]]\ndevice = 1\n", "line 3: peers: the key name is missing"),
    "peer called as a worker": (
        f'{MODEL}{GROUP}[[peers]]\nname = "box-0"\n',
        "line 6: peers.name: a worker is called box-0 too",
    ),
    "two peers of one name": (MODEL + PEER + PEER, "line 6: peers.name: another peer is called gpu too"),
    "peer called coordinator": (
        f'{MODEL}[[peers]]\nname = "coordinator"\n',
        "line 4: peers.name: the coordinator is called coordinator too",
    ),
    "device of a peer": (
        f'{MODEL}{PEER}device = "cuda:0"\n',
        'line 5: peers.device: a whole number from 0 to 63 is expected, found "cuda:0"',
    ),
    "adaptive peer": (
        f'{MODEL}{PEER}mode = "adaptive"\n',
        'line 5: peers.mode: "adaptive" is not available yet; "static" is',
    ),
    "memory of a peer": (
        f"{MODEL}{PEER}vram_gib = -1\n",
        'line 5: peers.vram_gib: "auto" or a number from 0 to 4096 is expected, found -1',
    ),
    "host that is none": (
        f'{MODEL}{PEER}host = "me@garage"\n',
        'line 5: peers.host: "local", ssh://HOST, ssh://USER@HOST or ssh://USER@HOST:PORT is expected, found '
        '"me@garage"',
    ),
    "host whose name would be an option": (
        f'{MODEL}{GROUP}host = "ssh://-oProxyCommand=x"\n',
        'line 5: workers.host: "local", ssh://HOST, ssh://USER@HOST or ssh://USER@HOST:PORT is expected, found '
        '"ssh://-oProxyCommand=x"',
    ),
    "another machine and an endpoint of this one": (
        f'{MODEL}[coordinator]\nlisten = "ipc://@here"\n{GROUP}host = "ssh://garage"\n',
        "line 7: workers.host: no other machine can dial ipc://@here, where the coordinator listens: a tcp endpoint is "
        "expected there",
    ),
    "another machine without a key": (
        f'{MODEL}{GROUP}host = "ssh://garage"\n[keys]\n',
        "line 5: workers.host: the cluster has keys, and a path of its key there is expected: keys_path\n"
        "line 6: keys: the key path is missing",
    ),
    "command here": (
        f'{MODEL}{GROUP}command = "expertmesh"\n',
        'line 5: workers.command: of use only with a host such as "ssh://me@garage"',
    ),
    "command with half a quotation": (
        f'{MODEL}{GROUP}host = "ssh://garage"\ncommand = "\'a"\n',
        'line 6: workers.command: what `expertmesh` is there, as a shell would have it, is expected, found "\'a"',
    ),
    "half a path there": (
        f'{MODEL}{GROUP}host = "ssh://garage"\nmodel_path = "m.gguf"\n',
        'line 6: workers.model_path: the whole path of a model on that machine is expected, found "m.gguf"',
    ),
    "settings of ssh that are not there": (
        f'{MODEL}[launch]\nssh_config = "none"\n',
        "line 4: launch.ssh_config: {folder}/none: No such file or directory",
    ),
    "address with a port": (
        f'{MODEL}[launch]\naddress = "box:7600"\n',
        'line 4: launch.address: a host\'s name or address, without a port, is expected, found "box:7600"',
    ),
    "logs in a file": (
        f'{MODEL}[launch]\nlogs = "empty.txt"\n',
        "line 4: launch.logs: {folder}/empty.txt is not a folder",
    ),
    "unknown key of a peer": (
        f"{MODEL}{PEER}threads = 1\n",
        "line 5: peers.threads: unknown; known are name, device, mode, vram_gib, host, model_path, command, keys_path",
    ),
    "65 peers": (
        MODEL + "".join(f'[[peers]]\nname = "gpu-{number}"\n' for number in range(65)),
        "line 131: peers: 65 peers found, 64 at most are expected",
    ),
    "unknown section": (
        f"{MODEL}[placment]\n",
        "line 3: placment: unknown; known are model, coordinator, workers, peers, lookahead, placement, launch, keys",
    ),
    "unknown key": (
        f"{MODEL}[coordinator]\nspeed = 1\n",
        "line 4: coordinator.speed: unknown; known are "
        "listen, threads, kv, chunk, drafts, halves, device, vram_gib, local_experts, orphan_s, audit, bulk, "
        "bulk_mb_s, profile",
    ),
    "unknown key of a group": (
        f"{MODEL}{GROUP}speed = 1\n",
        "line 5: workers.speed: unknown; known are name, count, threads, host, source, ram_gib, headroom_gib, "
        "model_path, command, keys_path, cache, give",
    ),
    "cache and model": (
        f'{MODEL}{GROUP}cache = "c"\nmodel_path = "DEMO"\n',
        "line 5: workers.cache: weights are fetched there, and model_path names a model: take one",
    ),
    "cache and arena": (
        f'{MODEL}{GROUP}cache = "c"\nsource = "shared"\n',
        'line 5: workers.cache: of no use with source = "shared", which needs all experts',
    ),
    "file for a cache": (
        f'{MODEL}{GROUP}cache = "pipe"\n',
        "line 5: workers.cache: {folder}/pipe is not a folder",
    ),
    "number for a cache": (
        f"{MODEL}{GROUP}cache = 3\n",
        "line 5: workers.cache: the path of a folder is expected, found 3",
    ),
    "nothing to give": (
        f'{MODEL}{GROUP}give = "tcp://127.0.0.1:7700"\n',
        "line 5: workers.give: what is in their cache is given there, so it needs cache",
    ),
    "giving at all addresses": (
        f'{MODEL}{GROUP}cache = "c"\ngive = "tcp://0.0.0.0:7700"\n',
        "line 6: workers.give: endpoint 'tcp://0.0.0.0:7700': others are told to dial it, so one address of this "
        "machine is expected, not all",
    ),
    "giving at any port": (
        f'{MODEL}{GROUP}cache = "c"\ngive = "tcp://127.0.0.1:*"\n',
        "line 6: workers.give: endpoint 'tcp://127.0.0.1:*': a port from 1 to 65535 expected",
    ),
    "giving to other machines without keys": (
        f'{MODEL}{GROUP}cache = "c"\ngive = "tcp://10.0.0.2:7700"\n',
        "line 6: workers.give: tcp://10.0.0.2:7700 can be reached from elsewhere, and nothing on the wire is "
        "encrypted without keys: make some by `expertmesh keys new keys`, and add a section [keys] with "
        'path = "keys"',
    ),
    "giving on another machine without keys": (
        f'{MODEL}{GROUP}host = "ssh://garage"\ncache = "/c"\ngive = "tcp://10.0.0.2:7700"\n',
        "line 7: workers.give: tcp://10.0.0.2:7700 can be reached from elsewhere, and nothing on the wire is "
        "encrypted without keys: make some by `expertmesh keys new keys`, and add a section [keys] with "
        'path = "keys"',
    ),
    "giving on another machine to itself": (
        f'{MODEL}{GROUP}host = "ssh://garage"\ncache = "/c"\ngive = "tcp://127.0.0.1:7700"\n',
        "line 7: workers.give: no other machine can dial tcp://127.0.0.1:7700: an address of that one is expected",
    ),
    "peer called as what gives": (
        f'{MODEL}{GROUP}cache = "c"\ngive = "ipc://@g"\n[[peers]]\nname = "box-weights"\n',
        "line 8: peers.name: what gives from a cache is called box-weights too",
    ),
    "bulk in words": (
        f'{MODEL}[coordinator]\nbulk = "yes"\n',
        'line 4: coordinator.bulk: true or false is expected, found "yes"',
    ),
    "no rate": (
        f"{MODEL}[coordinator]\nbulk_mb_s = 0\n",
        "line 4: coordinator.bulk_mb_s: a number above 0 and at most 100000 is expected, found 0",
    ),
    "worker called weights": (
        f'{MODEL}[[peers]]\nname = "weights"\n',
        "line 4: peers.name: the weights process is called weights too",
    ),
    "number for a profile": (
        f"{MODEL}[coordinator]\nprofile = 3\n",
        "line 4: coordinator.profile: the path of a file is expected, found 3",
    ),
    "profile without a folder": (
        f'{MODEL}[coordinator]\nprofile = "none/a.profile"\n',
        "line 4: coordinator.profile: {folder}/none is no folder",
    ),
    "pipe for a profile": (
        f'{MODEL}[coordinator]\nprofile = "pipe"\n',
        "line 4: coordinator.profile: {folder}/pipe is not a file",
    ),
    "not a device": (
        f'{MODEL}[coordinator]\ndevice = "gpu"\n',
        'line 4: coordinator.device: cpu or cuda:0 to cuda:63 is expected, found "gpu"',
    ),
    "number for a device": (
        f"{MODEL}[coordinator]\ndevice = 0\n",
        "line 4: coordinator.device: cpu or cuda:0 to cuda:63 is expected, found 0",
    ),
    "65 devices": (
        f'{MODEL}[coordinator]\ndevice = "cuda:64"\n',
        'line 4: coordinator.device: cpu or cuda:0 to cuda:63 is expected, found "cuda:64"',
    ),
    "memory of no device": (
        f"{MODEL}[coordinator]\nvram_gib = 4\n",
        'line 4: coordinator.vram_gib: this is memory of a GPU: it needs device = "cuda:0", or another',
    ),
    "negative memory": (
        f'{MODEL}[coordinator]\ndevice = "cuda:0"\nvram_gib = -0.5\n',
        'line 5: coordinator.vram_gib: "auto" or a number from 0 to 4096 is expected, found -0.5',
    ),
    "memory in words": (
        f'{MODEL}[coordinator]\ndevice = "cuda:0"\nvram_gib = "most"\n',
        'line 5: coordinator.vram_gib: "auto" or a number from 0 to 4096 is expected, found "most"',
    ),
    "wrong types, all at once": (
        f'{MODEL}[coordinator]\nlisten = 7600\nthreads = true\nkv = 16\nchunk = "all"\nlocal_experts = 0\n',
        f"line 4: coordinator.listen: an endpoint is expected, such as tcp://127.0.0.1:7600, found 7600\n"
        f"line 5: coordinator.threads: {THREADS}, found true\n"
        f'line 6: coordinator.kv: "f16" or "f32" is expected, found 16\n'
        f'line 7: coordinator.chunk: {THREADS}, found "all"\n'
        f"line 8: coordinator.local_experts: true or false is expected, found 0",
    ),
    "list for a number": (
        f"{MODEL}[coordinator]\nthreads = [1]\n",
        f"line 4: coordinator.threads: {THREADS}, found [1]",
    ),
    "long list for a number": (
        f"{MODEL}[coordinator]\nthreads = [{'1,' * 1000}]\n",
        f"line 4: coordinator.threads: {THREADS}, found [{'1, ' * 26}1...",
    ),
    "date for a number": (
        f"{MODEL}[coordinator]\nchunk = 1979-05-27\n",
        f'line 4: coordinator.chunk: {THREADS}, found "1979-05-27"',
    ),
    "endpoint of another machine": (
        f'{MODEL}[coordinator]\nlisten = "tcp://0.0.0.0:7600"\n',
        "line 4: coordinator.listen: tcp://0.0.0.0:7600 can be reached from elsewhere, and nothing on the wire is "
        "encrypted without keys: make some by `expertmesh keys new keys`, and add a section [keys] with "
        'path = "keys"',
    ),
    "more than all audited": (
        f"{MODEL}[coordinator]\naudit = 2\n",
        "line 4: coordinator.audit: a number from 0 to 1 is expected, found 2",
    ),
    "keys that are not there": (
        f'{MODEL}[keys]\npath = "none"\n',
        "line 4: keys.path: keys: {folder}/none: a folder with server.key is expected; " + NO_KEYS,
    ),
    "keys without a path": (f"{MODEL}[keys]\n", "line 3: keys: the key path is missing"),
    "number for keys": (f"{MODEL}[keys]\npath = 3\n", "line 4: keys.path: the path of keys is expected, found 3"),
    "key of a worker that is none": (
        f'{MODEL}{GROUP}keys_path = "bad.key"\n',
        'line 5: workers.keys_path: keys: {folder}/bad.key: no key file: a line secret = "40 characters" is expected',
    ),
    "endpoint with a file": (
        f'{MODEL}[coordinator]\nlisten = "ipc:///tmp/mesh"\n',
        f"line 4: coordinator.listen: endpoint 'ipc:///tmp/mesh': {LISTENING}",
    ),
    "last port": (
        f'{MODEL}[coordinator]\nlisten = "tcp://127.0.0.1:65535"\n',
        "line 4: coordinator.listen: endpoint 'tcp://127.0.0.1:65535': the next three ports are for work, layer "
        "inputs and weights, so 65532 at most is expected",
    ),
    "any port": (
        f'{MODEL}[coordinator]\nlisten = "tcp://127.0.0.1:*"\n',
        "line 4: coordinator.listen: endpoint 'tcp://127.0.0.1:*': a port from 1 to 65535 expected",
    ),
}
"""By name: the text, in which DEMO is the demo model, and the lines said about it, without the file's own path."""

CLUSTER_TEXTS = {
    "good": MODEL,
    "other-model": f'{MODEL}{GROUP}model_path = "FOLDER/other.gguf"\n',
    **{name.replace(" ", "_"): text for name, (text, _) in CLUSTERS.items()},
}

CLUSTER_FILES: Rows = {
    "no such file": (
        "up {folder}/none.toml",
        "Invalid value for 'CONFIG': {folder}/none.toml: No such file or directory",
    ),
    "folder": (
        "generate --config {folder} x",
        "Invalid value for '--config': {folder}: a file is expected, this is a folder",
    ),
    "bytes": ("up {folder}/bytes.toml", "{folder}/bytes.toml: not a TOML file: byte 7 is not UTF-8 text"),
    "no TOML": (
        "up {folder}/no-value.toml",
        "{folder}/no-value.toml: not a TOML file: Invalid value (at line 2, column 8)",
    ),
    "deep": (
        "up {folder}/deep.toml",
        "{folder}/deep.toml: not a TOML file of ours: tables or lists too deep within each other",
    ),
    "endless": ("up /dev/zero", "/dev/zero: not a TOML file of ours: longer than 1048576 bytes"),
}


@pytest.mark.parametrize(("command", "error"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_command_lines(command: str, error: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_refused(command, error, folder, capfd)


@pytest.mark.parametrize(("command", "error"), PROMPTS.values(), ids=PROMPTS)
def test_prompts(command: str, error: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_refused(command, error, folder, capfd)


@pytest.mark.parametrize(("command", "error"), CLUSTER_FILES.values(), ids=CLUSTER_FILES)
def test_files_that_are_no_cluster_files(
    command: str, error: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_refused(command, error, folder, capfd)


@pytest.mark.parametrize("name", CLUSTERS)
def test_what_cluster_files_say(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = f"{{folder}}/{name.replace(' ', '_')}.toml"
    lines = [f"{path}, {line}" for line in CLUSTERS[name][1].split("\n")]
    check_refused(f"up {path}", "\n".join(lines), folder, capfd)
