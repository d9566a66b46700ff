"""What would be started, resolved without starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import (
    ClusterConfig,
    CoordinatorConfig,
    LaunchConfig,
    LookaheadConfig,
    PeerConfig,
    WorkerGroup,
)
from coordinator.hosts import Host
from coordinator.launch_options import OPENING_S, PEERS_READY_S
from coordinator.launch_plan import resolve, share_cores
from coordinator.lookahead_choice import LookaheadChoice
from coordinator.private_cluster import kept_private, private_cluster, private_endpoint
from protocol.errors import ConfigError

MODEL = Path("/models/m.gguf")


def test_commands_and_names() -> None:
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(
            listen="tcp://127.0.0.1:7600", threads=2, kv="f32", chunk=8, drafts=0, halves="on", profile=Path("/p")
        ),
        workers=(
            WorkerGroup(name="box", count=2, threads=1),
            WorkerGroup(name="far", count=1, threads=3, model_path=Path("/copy/m.gguf")),
        ),
    )
    plan = resolve(config, python="/bin/py", cores=range(8))
    assert [process.name for process in plan.processes] == ["coordinator", "box-0", "box-1", "far-0"]
    coordinator, box, _, far = (process.command for process in plan.processes)
    assert coordinator[:4] == ("/bin/py", "-P", "-m", "coordinator.main")
    assert " ".join(coordinator[4:]) == (
        "--model /models/m.gguf --listen tcp://127.0.0.1:7600 --workers 3 --threads 2 --kv f32 --chunk 8 --drafts 0 "
        "--halves on --profile /p"
    )
    assert box[:4] == ("/bin/py", "-P", "-m", "expert_worker.main")
    assert (
        " ".join(box[4:]) == "--connect tcp://127.0.0.1:7600 --model /models/m.gguf --name box-0 --threads 1 --of 3/3"
    )
    assert "/copy/m.gguf" in far
    assert "far-0" in far


def test_keys_are_named_by_path_and_all_addresses_are_dialled_here() -> None:
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="tcp://0.0.0.0:7600", threads=2),
        workers=(WorkerGroup(name="box"), WorkerGroup(name="far", keys_path=Path("/etc/far.key"))),
        keys=Path("/keys"),
    )
    coordinator, box, far = (" ".join(process.command) for process in resolve(config, python="py", cores=()).processes)
    assert "--listen tcp://0.0.0.0:7600" in coordinator
    assert "--keys /keys" in coordinator
    assert "--connect tcp://127.0.0.1:7600" in box
    assert "--keys /keys" in box
    assert "--keys /etc/far.key" in far


def test_a_tunnel_leads_to_a_coordinator_with_keys_at_loopback() -> None:
    host = Host(name="garage.local")
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="tcp://0.0.0.0:7600", threads=2),
        workers=(WorkerGroup(name="far", host=host, keys_path=Path("/etc/far.key")),),
        keys=Path("/keys"),
    )
    plan = resolve(config, python="py", cores=(), tunnels=(host,))
    _, tunnel, far = (" ".join(process.command) for process in plan.processes)
    assert "127.0.0.1:7600" in tunnel
    assert "0.0.0.0" not in tunnel
    assert "--connect tcp://127.0.0.1:7600" in far
    assert "--keys /etc/far.key" in far
    assert "/keys" not in far.replace("/etc/far.key", "")


@pytest.mark.parametrize(
    ("vram_gib", "told"), [(None, "auto"), (0.0, "0"), (8.0, "8"), (0.001, "0.001"), (79.123456, "79.123456")]
)
def test_a_device_is_named_with_what_experts_may_take_of_it(vram_gib: float | None, told: str) -> None:
    config = private_cluster(MODEL, workers=0, threads=1, device="cuda:3", vram_gib=vram_gib)
    [coordinator] = resolve(config, python="py", cores=()).processes
    assert coordinator.command[-4:] == ("--device", "cuda:3", "--vram-gib", told)
    assert (
        "--device"
        not in resolve(private_cluster(MODEL, workers=0, threads=1), python="py", cores=()).processes[0].command
    )


def test_peers_are_started_beside_workers_and_waited_for_with_patience() -> None:
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="tcp://127.0.0.1:7600", threads=2),
        workers=(WorkerGroup(name="box", count=2),),
        peers=(PeerConfig(name="a", device=1, vram_gib=11.5), PeerConfig(name="b", model_path=Path("/copy/m.gguf"))),
    )
    plan = resolve(config, python="/bin/py", cores=range(8))
    assert [process.name for process in plan.processes] == ["coordinator", "box-0", "box-1", "a", "b"]
    assert [process.cores for process in plan.processes] == [(), (0,), (1,), (), ()]
    coordinator, _, _, a, b = (" ".join(process.command) for process in plan.processes)
    assert "--workers 4 " in coordinator
    assert coordinator.endswith(f" --ready-within {PEERS_READY_S}")
    assert a == (
        "/bin/py -P -m peer_gpu.main --connect tcp://127.0.0.1:7600 --model /models/m.gguf --name a "
        "--device cuda:1 --vram-gib 11.5"
    )
    assert b.endswith("--model /copy/m.gguf --name b --device cuda:0 --vram-gib auto")


def test_holders_outwait_a_coordinator_that_opens_its_gpu() -> None:
    """It answers nobody meanwhile; one that leaves never having been welcome is not started again."""
    workers, peers = (WorkerGroup(name="box"),), (PeerConfig(name="a"),)
    for device, waits in (("cpu", False), ("cuda:0", True)):
        coordinator = CoordinatorConfig(threads=1, device=device)
        config = ClusterConfig(model=MODEL, coordinator=coordinator, workers=workers, peers=peers)
        _, *holders = resolve(config, python="py", cores=()).processes
        assert len(holders) == 2
        assert all((f"--orphan-s {OPENING_S}" in " ".join(one.command)) == waits for one in holders)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_how_long_holders_wait_is_what_the_file_says(device: str) -> None:
    coordinator = CoordinatorConfig(threads=1, device=device, orphan_s=7)
    config = ClusterConfig(model=MODEL, coordinator=coordinator, workers=(WorkerGroup(name="box"),))
    _, worker = resolve(config, python="py", cores=()).processes
    assert "--orphan-s 7" in " ".join(worker.command)


def test_a_lookahead_process_comes_last_and_is_told_what_to_predict_by() -> None:
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="tcp://127.0.0.1:7600", threads=1),
        workers=(WorkerGroup(name="box"),),
        lookahead=LookaheadConfig(predictor="previous"),
    )
    choice = LookaheadChoice(on=True, reason="why not")
    plan = resolve(config, python="/bin/py", cores=range(8), lookahead=choice)
    assert [process.name for process in plan.processes] == ["coordinator", "box-0", "lookahead"]
    assert "--workers 1 " in " ".join(plan.processes[0].command)
    assert plan.processes[-1].cores == ()
    assert " ".join(plan.processes[-1].command) == (
        "/bin/py -P -m expert_worker.lookahead.main --connect tcp://127.0.0.1:7600 --model /models/m.gguf "
        "--name lookahead --predictor previous"
    )
    assert plan.lookahead is choice


def test_processes_of_other_machines_are_run_over_ssh_and_take_no_cores_here() -> None:
    garage = Host(name="garage", user="me", port=2222)
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="tcp://127.0.0.1:7600", threads=1),
        workers=(
            WorkerGroup(name="far", threads=3, host=garage, command=("env", "A=b c"), model_path=Path("/a b/m.gguf")),
            WorkerGroup(name="box", threads=2),
        ),
        peers=(PeerConfig(name="gpu", host=Host(name="x")),),
        launch=LaunchConfig(ssh_config=Path("/settings")),
    )
    _, far, box, gpu = resolve(config, python="/bin/py", cores=(4, 5)).processes
    assert (far.host, far.cores, box.cores) == (garage, (), (4, 5))
    assert far.command[0] == "ssh"
    assert far.command[-6:-1] == ("-F", "/settings", "-p", "2222", "me@garage")
    assert far.command[-1] == (
        "exec env 'A=b c' hosted run --cores 3 worker --connect tcp://127.0.0.1:7600 --model '/a b/m.gguf' "
        "--name far-0 --threads 3 --of 1"
    )
    assert gpu.command[-4:-1] == ("-F", "/settings", "x")
    assert gpu.command[-1].startswith("exec expertmesh hosted run --cores 0 peer --connect tcp://127.0.0.1:7600 ")


def test_a_cluster_for_one_answer_has_nothing_on_other_machines() -> None:
    config = ClusterConfig(model=MODEL, workers=(WorkerGroup(name="far", host=Host(name="garage")),))
    said = "nothing listens at tcp://127.0.0.1:7600, and a cluster for one answer has no processes on other machines"
    with pytest.raises(ConfigError, match=f"{said}, found far on ssh://garage: start it with `expertmesh up` first"):
        kept_private(config)


def test_workers_get_disjoint_cores_and_the_coordinator_any() -> None:
    config = ClusterConfig(model=MODEL, workers=(WorkerGroup(name="w", count=2, threads=2),))
    plan = resolve(config, python="py", cores=(1, 3, 5, 7, 9))
    assert [process.cores for process in plan.processes] == [(), (1, 3), (5, 7)]


def test_workers_that_need_more_cores_than_there_are_get_none_of_their_own() -> None:
    assert share_cores([1, 2], [0, 1]) == [(), ()]
    assert share_cores([1, 1], [0, 1]) == [(0,), (1,)]
    assert share_cores([], [0, 1]) == []


@pytest.mark.parametrize(("workers", "threads", "each"), [(0, 4, 4), (1, 4, 4), (2, 4, 2), (3, 4, 1), (5, 4, 1)])
def test_the_workers_of_one_answer_share_its_threads(workers: int, threads: int, each: int) -> None:
    config = private_cluster(MODEL, workers=workers, threads=threads)
    assert config.coordinator.threads == threads
    assert [(group.count, group.threads) for group in config.workers] == [(workers, each)]
    assert len(resolve(config, python="py", cores=range(4)).processes) == 1 + workers


def test_private_endpoints_have_no_file_and_never_meet() -> None:
    endpoints = {private_endpoint() for _ in range(100)}
    assert len(endpoints) == 100
    assert all(endpoint.startswith("ipc://@expertmesh-") for endpoint in endpoints)


def test_a_cluster_for_one_answer_never_listens_where_its_file_says() -> None:
    config = ClusterConfig(
        model=MODEL, coordinator=CoordinatorConfig(kv="f32", threads=3), workers=(WorkerGroup(name="w"),)
    )
    private, again = kept_private(config), kept_private(config)
    assert len({one.coordinator.listen for one in (config, private, again)}) == 3
    assert private.coordinator.listen.startswith("ipc://@expertmesh-")
    assert (private.coordinator.kv, private.coordinator.threads, private.workers) == ("f32", 3, config.workers)


def test_workers_that_fetch_their_weights_have_no_model_and_a_process_that_gives_them() -> None:
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="tcp://127.0.0.1:7600", threads=2, bulk_mb_s=12.5),
        workers=(WorkerGroup(name="box"), WorkerGroup(name="attic", count=2, cache=Path("/cache"))),
    )
    coordinator, weights, _, *attic = resolve(config, python="py", cores=()).processes
    assert coordinator.command[coordinator.command.index("--workers") + 1] == "1"  # nobody waits for a download
    assert weights.name == "weights"
    assert " ".join(weights.command) == (
        "py -P -m expert_worker.weights.main --model /models/m.gguf --listen tcp://127.0.0.1:7603 --mb-s 12.5"
    )
    for number, worker in enumerate(attic):
        told = f"--connect tcp://127.0.0.1:7600 --cache /cache --name attic-{number} --threads 1 --of 3/3"
        assert " ".join(worker.command[4:]) == told


@pytest.mark.parametrize(
    ("bulk", "count", "gives"), [(False, 0, False), (True, 0, True), (False, 1, True), (True, 1, True)]
)
def test_weights_are_given_where_somebody_may_want_them(bulk: bool, count: int, gives: bool) -> None:
    coordinator = CoordinatorConfig(listen="ipc://@x", threads=1, bulk=bulk)
    groups = (WorkerGroup(name="attic", count=count, cache=Path("/cache")),)
    plan = resolve(ClusterConfig(model=MODEL, coordinator=coordinator, workers=groups), python="py", cores=())
    assert ("weights" in [process.name for process in plan.processes]) == gives


def test_a_cache_may_be_given_to_others_by_a_process_beside_its_workers() -> None:
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="ipc://@x", threads=1),
        workers=(
            WorkerGroup(name="attic", cache=Path("/cache"), give="tcp://127.0.0.1:7700"),
            WorkerGroup(name="none", count=0, cache=Path("/none"), give="tcp://127.0.0.1:7701"),
        ),
    )
    [_, _, giver, _] = resolve(config, python="py", cores=()).processes
    assert giver.name == "attic-weights"
    assert not any(group.give for group in kept_private(config).workers)  # its endpoint may be another cluster's
    assert " ".join(giver.command[4:]) == ("--cache /cache --connect ipc://@x --listen tcp://127.0.0.1:7700 --mb-s 100")


def test_a_cache_on_another_machine_is_given_there_with_a_key_of_its_own() -> None:
    garage, gives = Host(name="garage"), "tcp://10.0.0.2:7700"
    attic = {"cache": Path("/cache"), "keys_path": Path("/etc/keys"), "command": ("/opt/expertmesh",)}
    config = ClusterConfig(
        model=MODEL,
        coordinator=CoordinatorConfig(listen="tcp://0.0.0.0:7600", threads=1),
        workers=(
            WorkerGroup(name="attic", host=garage, give=gives, **attic),  # type: ignore[arg-type]
            WorkerGroup(name="here", cache=Path("/own"), give="tcp://10.0.0.1:7700"),
        ),
        launch=LaunchConfig(address="10.0.0.1"),
        keys=Path("/keys"),
    )
    _, _, far, near, *_ = resolve(config, python="py", cores=()).processes
    assert (far.name, far.host, near.name, near.host) == ("attic-weights", garage, "here-weights", None)
    assert far.command[-1] == (
        "exec /opt/expertmesh hosted run --cores 0 weights --cache /cache --connect tcp://10.0.0.1:7600 "
        f"--listen {gives} --keys /etc/keys --mb-s 100"
    )
    assert near.command[:4] == ("py", "-P", "-m", "expert_worker.weights.main")
    assert " ".join(near.command[-4:]) == "--keys /keys --mb-s 100"
