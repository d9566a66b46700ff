"""Clusters whose coordinator may be on a device, with workers and peers, and what happens to them in mid-answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusters import PATIENT, Answer, LiveCluster, RealProcess, Status, Then, in_force, worker_of
from device_engine import CUDA, experts_gib

START_S = 120.0
"""For everybody to be there: a GPU's first use by a process takes seconds, and compiling kernels more."""
KILL_AT = 20
"""The token after which somebody is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Who computes what."""

    vram: float | None = None
    """The share of the experts in the coordinator's own device; None: the coordinator is on the processor."""
    workers: int = 0
    peers: int = 0
    """GPU processes that hold what is left, evenly; workers hold it if there are none."""

    def options(self, model: Path, device: str = CUDA) -> list[str]:
        """Of the coordinator."""
        if self.vram is None:
            return []
        return ["--device", device, "--vram-gib", f"{experts_gib(model, self.vram):.12f}"]


ARRANGEMENTS = {
    "all on the processor": Arrangement(),
    "two workers": Arrangement(workers=2),
    "all in VRAM": Arrangement(vram=1.0),
    "all on two workers": Arrangement(vram=0.0, workers=2),
    "half in VRAM, half on the processor": Arrangement(vram=0.5),
    "half in VRAM, half on two workers": Arrangement(vram=0.5, workers=2),
    "half in VRAM, half on a peer": Arrangement(vram=0.5, peers=1),
    "a third in VRAM, the rest on two peers": Arrangement(vram=1 / 3, peers=2),
    "processor and a peer": Arrangement(peers=1),
    "a quarter in VRAM, a peer, two workers": Arrangement(vram=0.25, workers=2, peers=1),
}


class GpuCluster:
    """An arrangement that runs."""

    def __init__(self, cluster: LiveCluster, arrangement: Arrangement, peers: list[RealProcess]) -> None:
        self.live = cluster
        self.arrangement = arrangement
        self.peers = peers

    def check_shares(self, answer: Answer, entries: int) -> None:
        """Everybody who holds experts computed some of so many entries, together all of them, and nobody in vain."""
        report = answer.report
        members = {worker["name"]: worker["entries"] for worker in report["workers"]}
        assert len(members) == self.arrangement.workers + self.arrangement.peers
        assert all(members.values()), members
        held = self.arrangement.vram or 0.0
        assert (report["device_entries"] > 0) == (held > 0)
        assert (report["local_entries"] > 0) == (held < 1 and not members)
        assert report["local_entries"] + report["device_entries"] + sum(members.values()) == entries
        assert report["late_replies"] == report["replans"] == report["dropped"] == 0

    def killing(self, victim: RealProcess) -> list[Then]:
        """A script: SIGKILL in mid-answer, then its absence is noticed."""

        def gone(report: Status) -> bool:
            return str(worker_of(report, victim.name)["state"]) == "lost"

        return [Then(KILL_AT, victim.kill), Then(gone)]


@contextmanager
def gpu_cluster(
    model: Path,
    log_dir: Path,
    arrangement: Arrangement,
    *,
    options: Sequence[str] = PATIENT,
    worker_options: Sequence[str] = (),
    coordinator_module: str = "coordinator.main",
    peer_module: str = "peer_gpu.main",
) -> Iterator[GpuCluster]:
    """Everybody is in force when this begins; at the end everything is stopped, and nothing must be left.

    `options` are the coordinator's; modules may be others that emulate the device.
    """
    log_dir.mkdir(exist_ok=True)
    everybody = arrangement.workers + arrangement.peers
    options = [*options, *arrangement.options(model), "--workers", str(everybody)]  # the last --workers counts
    cluster = LiveCluster(
        model,
        log_dir,
        workers=arrangement.workers,
        coordinator_options=options,
        worker_options=worker_options,
        coordinator_module=coordinator_module,
    )
    try:
        peers = [_start_peer(cluster, model, arrangement, number, peer_module) for number in range(arrangement.peers)]
        cluster.wait_for(lambda report: report["state"] != "waiting" and in_force(report) == everybody, START_S)
        yield GpuCluster(cluster, arrangement, peers)
        cluster.stop()
    finally:
        cluster.close()
    assert not cluster.survivors(), cluster.survivors()


def _start_peer(cluster: LiveCluster, model: Path, arrangement: Arrangement, number: int, module: str) -> RealProcess:
    name = f"peer-{number}"
    left = 1 - (arrangement.vram or 0.0)
    each = left / (arrangement.peers + (arrangement.workers > 0))
    room = experts_gib(model, 1.2 * each)  # a little more: shares are whole experts
    options = ["--connect", cluster.endpoint, "--model", str(model), "--name", name]
    return cluster.start(name, module, [*options, "--device", CUDA, "--vram-gib", f"{room:.12f}"])
