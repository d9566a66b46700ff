"""What a person is told who gets a cluster file wrong: every message, whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import Rows, check_refused, fill

from coordinator.demo import demo_model

pytestmark = pytest.mark.timeout(60)

DEMO = str(demo_model())
LONG = "x" * 300
LISTENING = (
    "expected an address of this machine in numbers, such as tcp://0.0.0.0:PORT for all of them, or "
    "tcp://127.0.0.1:PORT, tcp://localhost:PORT, tcp://[::1]:PORT or ipc://@NAME"
)
NO_KEYS = "`expertmesh keys new FOLDER` makes keys"
THREADS = "a whole number from 1 to 512 is expected"
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are wrong, and a pipe that nobody writes to."""
    folder = fill(tmp_path_factory.mktemp("wrong"))
    for name, (text, _) in CLUSTERS.items():
        _file_of(name, folder).write_text(text.replace("DEMO", DEMO))
    return folder


def _file_of(name: str, folder: Path) -> Path:
    return folder / f"{name.replace(' ', '_')}.toml"


@pytest.mark.parametrize(("command", "error"), CLUSTER_FILES.values(), ids=CLUSTER_FILES)
def test_files_that_are_no_cluster_files(
    command: str, error: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_refused(command, error, folder, capfd)


@pytest.mark.parametrize("name", CLUSTERS)
def test_what_cluster_files_say(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = _file_of(name, folder)
    lines = [f"{path}, {line}" for line in CLUSTERS[name][1].split("\n")]
    check_refused(f"up {path}", "\n".join(lines), folder, capfd)
