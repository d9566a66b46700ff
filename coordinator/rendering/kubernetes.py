"""Kubernetes: without keys one pod of all processes, which share its loopback interface; with them a pod for each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from coordinator.config import ClusterConfig
from coordinator.rendering.parts import Part, dns_name, everywhere, parts, with_models_in, with_option, without_givers
from protocol.errors import ConfigError

MODELS, KEYS = PurePosixPath("/models"), PurePosixPath("/keys")
NAME = "EXPERTMESH_NAME"
"""The variable that has a pod's name."""
AT_HEAD = ("coordinator", "weights")
"""Kinds of parts that share a pod, since they listen at neighbouring ports of one address."""
PORTS = ("control", "work", "inputs", "bulk")
"""What these are for; the last one only if weights are given."""
PYTHON = "python3"
STOP_S = 30
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What is there already."""

    image: str
    """In which `python3` has this program."""
    claim: str
    """A PersistentVolumeClaim that has the models at its top."""


def manifests(cluster: str, config: ClusterConfig, around: Around) -> list[Json]:
    """Objects for `kubectl apply`. ConfigError for a cluster that pods cannot run."""
    spread = config.keys is not None
    moved = with_models_in(everywhere(config), MODELS)
    if config.coordinator.profile is not None:
        raise ConfigError(f"profile is {config.coordinator.profile}: pods have no folder for it that stays")
    made = parts(moved, python=PYTHON)
    name = f"expertmesh-{cluster}"
    if not spread:
        return [_one_pod(name, made, around)]
    without_givers(config, "pods")
    return _pods(name, made, config.coordinator.listen, around)


def _one_pod(name: str, made: Sequence[Part], around: Around) -> Json:
    containers = []
    for part in made:
        for number in range(part.count):
            own = f"{part.name}-{number}" if part.kind == "worker" else part.name
            containers.append(_container(part, own, around, with_option(part.command, "--name", own)))
    return _deployment(name, {"app": name}, containers, _folders(made, around))


def _pods(name: str, made: Sequence[Part], listen: str, around: Around) -> list[Json]:
    port = re.fullmatch(r"tcp://.+:([0-9]+)", listen)
    if port is None:
        raise ConfigError(f"listen is {listen}: pods reach each other at tcp://0.0.0.0:PORT")
    head = f"{name}-coordinator"
    connect = f"tcp://{head}:{port[1]}"
    at_head = [part for part in made if part.kind in AT_HEAD]
    ports = [use for use in PORTS if use != "bulk" or len(at_head) > 1]
    objects = [_service(head, {"app": name, "role": "coordinator"}, int(port[1]), ports), _governing(name)]
    for together in [at_head, *([part] for part in made if part.kind not in AT_HEAD)]:
        part = together[0]
        role = dns_name(part.name)
        labels = {"app": name, "role": role}
        containers = [_keyed_container(each, connect, around) for each in together]
        volumes = [*_folders(together, around), _keys_volume(name, part)]
        if part.kind == "worker":
            objects.append(_set_of(name, role, part.count, labels, containers[0], volumes))
        else:
            objects.append(_deployment(f"{name}-{role}", labels, containers, volumes))
    return objects


def _keyed_container(part: Part, connect: str, around: Around) -> Json:
    command = with_option(with_option(part.command, "--of", None), "--keys", str(_key(part)))
    command = with_option(command, "--connect", connect)
    own = f"$({NAME})" if part.kind == "worker" else part.name
    container = _container(part, part.name, around, with_option(command, "--name", own))
    container["volumeMounts"].append({"name": "keys", "mountPath": str(KEYS), "readOnly": True})
    if part.kind == "worker":
        container["env"] = [{"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    return container


def _key(part: Part) -> PurePosixPath:
    return KEYS if part.kind in AT_HEAD else KEYS / "client.key"


def _keys_volume(name: str, part: Part) -> Json:
    """The coordinator has the whole folder, which two secrets make; everybody else the key of a client."""
    client = {"secret": {"name": f"{name}-client", "items": [{"key": "client.key", "path": "client.key"}]}}
    if part.kind != "coordinator":
        return {"name": "keys", "projected": {"defaultMode": 0o400, "sources": [client]}}
    server = {"secret": {"name": f"{name}-server", "items": [{"key": "server.key", "path": "server.key"}]}}
    allowed = {"secret": {"name": f"{name}-allowed", "items": [{"key": "client.pub", "path": "allowed/client.pub"}]}}
    return {"name": "keys", "projected": {"defaultMode": 0o400, "sources": [server, client, allowed]}}


def _container(part: Part, name: str, around: Around, command: Sequence[str]) -> Json:
    if part.gpus:  # a container sees its own alone
        command = with_option(command, "--device", "cuda:0")
    resources: Json = {"requests": {"cpu": str(part.threads)}}
    if part.gpus:
        resources["limits"] = {"nvidia.com/gpu": str(part.gpus)}
    return {
        "name": dns_name(name),
        "image": around.image,
        "command": [_unexpanded(word) for word in command],
        "resources": resources,
        "volumeMounts": [_mounted(part)],
    }


def _unexpanded(word: str) -> str:
    """Kubernetes sees variables in `$(...)`; there are none but ours."""
    return word if word == f"$({NAME})" else word.replace("$(", "$$(")


def _mounted(part: Part) -> Json:
    """Where the weights of a part lie: among the models, or where they come to from others."""
    if part.cache is None:
        return {"name": "models", "mountPath": str(MODELS), "readOnly": True}
    return {"name": _cache_name(part.cache), "mountPath": part.cache}


def _folders(made: Sequence[Part], around: Around) -> list[Json]:
    """What they have mounted. A cache is a folder of the node, so what was fetched once stays there."""
    claimed = {"claimName": around.claim, "readOnly": True}
    models = {"name": "models", "persistentVolumeClaim": claimed}
    caches = dict.fromkeys(part.cache for part in made if part.cache is not None)
    return [models for _ in range(any(part.cache is None for part in made))] + [
        {"name": _cache_name(path), "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for path in caches
    ]


def _cache_name(path: str) -> str:
    """Of its volume: two caches have two."""
    return f"cache-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def _pod(labels: Json, containers: Sequence[Json], volumes: Sequence[Json]) -> Json:
    return {
        "metadata": {"labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": STOP_S,
            "enableServiceLinks": False,
            "containers": list(containers),
            "volumes": list(volumes),
        },
    }


def _deployment(name: str, labels: Json, containers: Sequence[Json], volumes: Sequence[Json]) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # two of one name are refused
            "selector": {"matchLabels": labels},
            "template": _pod(labels, containers, volumes),
        },
    }


def _set_of(name: str, role: str, count: int, labels: Json, container: Json, volumes: Sequence[Json]) -> Json:
    """Workers have names that stay, so one that comes back is known."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": f"{name}-{role}", "labels": labels},
        "spec": {
            "serviceName": name,
            "replicas": count,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": _pod(labels, [container], volumes),
        },
    }


def _service(name: str, selector: Json, port: int, uses: Sequence[str]) -> Json:
    """For the coordinator's ports; found before it is ready, since it is ready when workers have joined."""
    ports = [{"name": use, "port": port + beside} for beside, use in enumerate(uses)]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": selector},
        "spec": {"selector": selector, "publishNotReadyAddresses": True, "ports": ports},
    }


def _governing(name: str) -> Json:
    """What a StatefulSet names its pods in."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"clusterIP": "None", "selector": {"app": name}},
    }
