"""Manifests: kubectl reads them, and containers run what the launcher would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rendered import CACHE, KEYS, fetching_cluster, full_cluster

from coordinator.config import ClusterConfig
from coordinator.rendering.kubernetes import Around, manifests
from coordinator.rendering.yaml import documents
from protocol.errors import ConfigError

AROUND = Around(image="registry/expertmesh:1", claim="models")


def objects(**cluster: Any) -> list[Any]:
    """As somebody else reads the text."""
    return read(full_cluster(**cluster))


def read(config: ClusterConfig) -> list[Any]:
    return list(yaml.safe_load_all(documents(manifests("home", config, AROUND))))


def containers(of: Any) -> list[Any]:
    found = of["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, list)
    return found


def option(container: Any, name: str) -> str:
    command = container["command"]
    return str(command[command.index(name) + 1])


def test_without_keys_all_processes_share_a_pod() -> None:
    [deployment] = objects()
    assert (deployment["kind"], deployment["spec"]["replicas"]) == ("Deployment", 1)
    made = containers(deployment)
    assert [one["name"] for one in made] == ["coordinator", "box-0", "box-1", "far-1-0", "gpu", "lookahead"]
    assert [option(one, "--name") for one in made[1:]] == ["box-0", "box-1", "Far_1-0", "gpu", "lookahead"]
    assert {option(one, "--connect") for one in made[1:]} == {option(made[0], "--listen")}
    assert option(made[3], "--model") == "/models/m.gguf"
    assert made[4]["resources"] == {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    assert option(made[4], "--device") == "cuda:0"


def test_with_keys_each_part_has_pods_that_find_the_coordinator_by_name() -> None:
    made = objects(keys=KEYS)
    kinds = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert kinds == [
        ("Service", "expertmesh-home-coordinator"),
        ("Service", "expertmesh-home"),
        ("Deployment", "expertmesh-home-coordinator"),
        ("StatefulSet", "expertmesh-home-box"),
        ("StatefulSet", "expertmesh-home-far-1"),
        ("Deployment", "expertmesh-home-gpu"),
        ("Deployment", "expertmesh-home-lookahead"),
    ]
    service, governing, coordinator, box, *_ = made
    assert [port["port"] for port in service["spec"]["ports"]] == [7600, 7601, 7602]
    assert service["spec"]["selector"] == coordinator["spec"]["template"]["metadata"]["labels"]
    assert governing["spec"]["clusterIP"] == "None"
    assert (box["spec"]["replicas"], box["spec"]["serviceName"]) == (2, "expertmesh-home")
    [worker] = containers(box)
    assert option(worker, "--connect") == "tcp://expertmesh-home-coordinator:7600"
    assert option(worker, "--name") == f"$({worker['env'][0]['name']})"
    assert "--of" not in worker["command"]
    volumes = {one["name"] for one in box["spec"]["template"]["spec"]["volumes"]}
    assert volumes == {mount["name"] for mount in worker["volumeMounts"]} == {"models", "keys"}
    secrets = [one["secret"]["name"] for one in box["spec"]["template"]["spec"]["volumes"][1]["projected"]["sources"]]
    assert secrets == ["expertmesh-home-client"], "no worker has the coordinator's secret"


def volumes(of: Any) -> dict[str, Any]:
    """By name; each container mounts no others."""
    spec = of["spec"]["template"]["spec"]
    found = {one["name"]: one for one in spec["volumes"]}
    assert {mount["name"] for one in spec["containers"] for mount in one["volumeMounts"]} == set(found)
    return found


def test_who_fetches_weights_has_a_cache_and_somebody_who_gives_them() -> None:
    made = {
        (one["kind"], one["metadata"]["name"]): one for one in read(fetching_cluster(KEYS, listen="tcp://[::]:7600"))
    }
    service = made["Service", "expertmesh-home-coordinator"]
    assert [port["port"] for port in service["spec"]["ports"]] == [7600, 7601, 7602, 7603]
    head = made["Deployment", "expertmesh-home-coordinator"]
    coordinator, weights = containers(head)
    assert (option(weights, "--listen"), option(weights, "--model")) == (
        "tcp://[::]:7603",
        option(coordinator, "--model"),
    )
    assert option(weights, "--keys") == option(coordinator, "--keys")
    assert set(volumes(head)) == {"models", "keys"}
    attic = made["StatefulSet", "expertmesh-home-attic"]
    [worker] = containers(attic)
    [(name, cache)] = [(name, one) for name, one in volumes(attic).items() if name != "keys"]
    assert cache["hostPath"] == {"path": str(CACHE), "type": "DirectoryOrCreate"}
    assert {"name": name, "mountPath": option(worker, "--cache")} in worker["volumeMounts"]


def test_in_one_pod_what_is_fetched_is_given_too() -> None:
    [deployment] = read(fetching_cluster(give="tcp://127.0.0.1:7700"))
    made = {one["name"]: one for one in containers(deployment)}
    assert list(made) == [
        *("coordinator", "weights", "box-0", "box-1", "far-1-0", "attic-0", "attic-1", "attic-weights"),
        *("gpu", "lookahead"),
    ]
    assert {option(made[name], "--cache") for name in ("attic-0", "attic-1", "attic-weights")} == {str(CACHE)}
    assert len(volumes(deployment)) == 2


def test_pods_have_no_use_for_what_only_their_own_can_dial() -> None:
    with pytest.raises(ConfigError, match=r"give of workers attic is tcp://127.0.0.1:7700: pods have no loopback"):
        read(fetching_cluster(KEYS, give="tcp://127.0.0.1:7700"))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("with_keys", [False, True])
def test_kubectl_reads_them(with_keys: bool, tmp_path: Path) -> None:
    made = manifests("home", fetching_cluster(KEYS if with_keys else None), AROUND)
    (tmp_path / "all.yaml").write_text(documents(made))
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml]\n")
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(yaml.safe_load_all(done.stdout))) == len(made)


def test_what_pods_cannot_keep_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"profile is /a\.profile: pods have no folder for it that stays"):
        manifests("home", full_cluster(profile=Path("/a.profile")), AROUND)


def test_pods_cannot_reach_a_name_of_one_machine() -> None:
    with pytest.raises(ConfigError, match="listen is ipc://@x: pods reach each other at tcp://"):
        manifests("home", full_cluster(KEYS, listen="ipc://@x"), AROUND)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), inner),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, min_size=1), min_size=1, max_size=3))
def test_whatever_is_written_is_read_again(values: list[Any]) -> None:
    assert list(yaml.safe_load_all(documents(values))) == values
