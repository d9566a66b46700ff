"""Weights from another worker's cache, with keys: on this machine, and from one machine to another."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from clusters import PATIENT, Condition, LiveCluster, Status, live_cluster, worker_of
from command_line import COMMAND, environment, processes_of, run, wait_until
from free_ports import four_ports
from key_folders import key_folder, stranger_of, take_back
from offers import are_offered
from reference_answer import Reference
from running_up import ask, up
from ssh_clusters import FarMachine, cluster_file, far_machine, needs_namespaces
from ssh_server import SshServer, needs_sshd, ssh_server

from coordinator.client import Client
from coordinator.key_files import add_key
from protocol.bulk import BULK_FRAME_BYTES
from protocol.errors import ConfigError
from protocol.keys import DialKeys, giving_keys
from protocol.messages import FetchPiece, PieceBytes, PieceFailed
from protocol.model import Model
from protocol.wire import Dialled, public_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A cluster with keys, of which worker-0 has fetched weights, and a process gives them."""

    cluster: LiveCluster
    keys: Path
    """The coordinator's."""
    own: Path
    """The giver's."""
    endpoint: str
    """Where it gives."""
    log: Path
    fetch: FetchPiece
    """What it cannot refuse but for who asks: it may say that a piece is not there."""

    def as_dialled(self, keys: DialKeys | None) -> DialKeys | None:
        """The same secret, for whoever dials the giver."""
        return None if keys is None else replace(keys, coordinator=public_of(giving_keys(self.own).secret))

    def answers(self, keys: DialKeys | None, within_s: float = 20) -> bool:
        """Whether it does, to one who dials with these. ConfigError if they are not let in."""
        with Dialled(self.endpoint, keys=self.as_dialled(keys), max_frame_bytes=BULK_FRAME_BYTES) as line:
            line.send(self.fetch)
            return wait_until(lambda: isinstance(line.receive(0.1), PieceBytes | PieceFailed), within_s)


@pytest.fixture
def given(demo_model: Path, tmp_path: Path) -> Iterator[Given]:
    keys = key_folder(tmp_path / "keys")
    add_key(keys, "attic", gives=True)
    caches = {number: tmp_path / f"cache-{number}" for number in range(2)}
    settings = {"keys": keys, "listen": f"tcp://127.0.0.1:{four_ports()}", "caches": caches}
    with live_cluster(demo_model, tmp_path, workers=1, coordinator_options=PATIENT, **settings) as cluster:
        endpoint, log = f"tcp://127.0.0.1:{four_ports()}", tmp_path / "giver.log"
        options = ["--connect", cluster.endpoint, "--cache", str(caches[0]), "--keys", str(keys / "attic")]
        giver = cluster.start("giver", "expert_worker.weights.main", [*options, "--listen", endpoint])
        assert wait_until(lambda: "giving model" in log.read_text(), 20)
        with Model.open(demo_model) as model:
            fetch = FetchPiece(fingerprint=model.fingerprint, file=0, offset=0, bytes=1)
        yield Given(cluster=cluster, keys=keys, own=keys / "attic", endpoint=endpoint, log=log, fetch=fetch)
        giver.signal(signal.SIGTERM)
        assert giver.wait() == 0


def test_weights_come_from_a_cache_with_a_key_of_its_own(
    given: Given, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    cluster = given.cluster
    assert are_offered(1.0, cluster.endpoint, demo_model, cluster.keys)
    cluster.add_worker()
    answer = cluster.answer(prompt, 100)
    reference.check(answer)
    assert answer.report["local_entries"] == 0
    assert f"{given.endpoint} gives weights too: 96 experts" in (tmp_path / "worker-1.log").read_text()
    counts = worker_of(cluster.wait_for(has_fetched("worker-1")), "worker-1")["tiers"]
    assert counts["fetched_from_caches"] > counts["fetched_bytes"] // 3


def has_fetched(name: str) -> Condition:
    """Whether it has told in a beat of all the bytes that it was to fetch."""

    def judge(report: Status) -> bool:
        tiers = worker_of(report, name)["tiers"]
        return tiers.get("fetched_bytes", 0) > 0 == tiers["fetch_left_bytes"]

    return judge


def test_who_has_no_key_of_the_cluster_gets_nothing_and_one_can_be_taken_back(given: Given, tmp_path: Path) -> None:
    client = DialKeys.load(given.keys)
    assert given.answers(client)
    with pytest.raises(ConfigError, match="does not let in the key of elsewhere"):
        given.answers(stranger_of(given.keys, tmp_path / "other"))
    with pytest.raises(ConfigError, match="lets in nobody without a key"):
        given.answers(None)
    take_back(given.own, "client")
    assert wait_until(lambda: refused(given, client), 20)
    assert "taken back: client" in given.log.read_text()


def refused(given: Given, keys: DialKeys) -> bool:
    """Whether it lets nobody in with these; who came in just before a key was taken back gets no answer at all."""
    try:
        given.answers(keys, within_s=2)
    except ConfigError as error:
        return re.search(r"does not let in the key of .*client\.key", str(error)) is not None
    return False


def test_who_is_not_let_in_by_a_cache_fetches_elsewhere(
    given: Given, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    take_back(given.own, "client")
    assert wait_until(lambda: refused(given, DialKeys.load(given.keys)), 20)  # it looks now and then
    given.cluster.add_worker()
    answer = given.cluster.answer(prompt, 50)
    reference.check(answer)
    assert answer.report["local_entries"] == 0
    log = (tmp_path / "worker-1.log").read_text()
    assert f"{given.endpoint} is asked no more: whoever listens at {given.endpoint} does not let in the key of" in log
    fetched = worker_of(given.cluster.wait_for(has_fetched("worker-1")), "worker-1")["tiers"]
    assert fetched["fetched_from_caches"] == 0


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ((), "Another address needs keys, without which nothing on the wire is encrypted"),
        (("keys/garage.key",), "whoever gives needs one to listen with, too: a folder of both is expected"),
    ],
)
def test_nothing_is_given_to_other_machines_without_a_key_to_listen_with(
    keys: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    key_folder(tmp_path / "keys", "garage")
    options = ["--connect", "tcp://127.0.0.1:7600", "--cache", tmp_path / "c", "--listen", "tcp://10.0.0.2:7700"]
    done = run("weights", *options, *(word for key in keys for word in ("--keys", tmp_path / key)))
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert not (tmp_path / "c").exists()


# --- two machines -----------------------------------------------------------------------------------------------------


@contextmanager
def two_machines(folder: Path) -> Iterator[tuple[FarMachine, SshServer, Path]]:
    """This one and another; and the keys of both, those of that one in the folder `there`."""
    for made in (("new", folder / "keys"), ("add", folder / "keys", "garage", "--gives")):
        assert run("keys", *made).returncode == 0
    (folder / "keys" / "garage").rename(folder / "there")
    with far_machine() as far, ssh_server(folder / "ssh", far.address, far.within) as server:
        yield far, server, folder / "there"


@needs_sshd
@needs_namespaces
def test_a_worker_here_fetches_what_a_worker_of_another_machine_has(demo_model: Path, tmp_path: Path) -> None:
    with two_machines(tmp_path) as (far, server, there):
        endpoint, gives = f"tcp://0.0.0.0:{four_ports()}", f"tcp://{far.address}:7700"
        attic = {"keys_path": str(there), "cache": str(tmp_path / "far-cache"), "give": gives}
        config, _ = cluster_file(tmp_path, server, attic, listen=endpoint, more='[keys]\npath = "keys"\n')
        alone = json.loads(run("generate", "--json", "--max-tokens", 8, "In the beginning God created").stdout)
        with up(config, endpoint) as cluster:
            cluster.line(r"garage-weights: .*giving model")
            near = endpoint.replace("0.0.0.0", far.near)
            keys = DialKeys.load(tmp_path / "keys")
            assert are_offered(0.5, near, demo_model, keys), "as one of two workers has"
            options = ["--connect", near, "--keys", tmp_path / "keys", "--cache", tmp_path / "cache", "--name", "here"]
            with subprocess.Popen([*COMMAND, "worker", *map(str, options)], env=environment()) as here:
                with Client(near, keys=keys) as client:
                    assert wait_until(lambda: fetched_from_caches(client, "here") > 0, 60)
                report = ask(config)
                assert report["sha256_logits"] == alone["sha256_logits"]
                assert {"here", "garage-0"} <= {worker["name"] for worker in report["workers"]}
                cluster.process.send_signal(signal.SIGINT)
                assert cluster.process.wait(30) == 0
                assert here.wait(30) == 0
        assert wait_until(lambda: not processes_of(str(there)), 10.0)


def fetched_from_caches(client: Client, name: str) -> int:
    """Bytes, as its latest beat tells; 0 before it has joined."""
    report = client.status(10.0, lambda: None)
    rows = [worker for worker in (report or {"workers": []})["workers"] if worker["name"] == name]
    return sum(int(row["tiers"].get("fetched_from_caches", 0)) for row in rows)


@needs_sshd
@needs_namespaces
def test_an_address_that_another_machine_has_not_is_told_before_anything_starts(tmp_path: Path) -> None:
    with two_machines(tmp_path) as (far, server, there):
        gives = f"tcp://{far.near}:7700"
        attic = {"keys_path": str(there), "cache": str(tmp_path / "far-cache"), "give": gives}
        listen = f"tcp://0.0.0.0:{four_ports()}"
        config, _ = cluster_file(tmp_path, server, attic, listen=listen, more='[keys]\npath = "keys"\n')
        done = run("up", config)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"error: garage on {server.url}: nobody can listen at {gives}, where weights are to be given: "
            "Cannot assign requested address\n"
        )
