"""The coordinator process: `python -P -m coordinator.main --model FILE --listen ENDPOINT`.

Logs to stderr. Exit code 0 after Stop, SIGTERM or SIGINT; 2 when it cannot do what it was asked to, 1 when it fails;
the last line on stderr is then `error: ...`.
"""

from __future__ import annotations

from protocol.startup import first_of_all, loaded, refuse

try:
    import native
except ImportError as error:
    refuse(error)

if __name__ == "__main__":  # and only then load the rest
    first_of_all(native.die_with_parent)

import argparse
import logging
import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from coordinator.audit import Auditor
from coordinator.canaries import Canaries
from coordinator.cluster import Cluster
from coordinator.config import inputs_endpoint, work_endpoint
from coordinator.deadlines import CallLimits
from coordinator.demand import Demand
from coordinator.devices import Devices, opened
from coordinator.dispatch import MeshExperts
from coordinator.engine import Engine
from coordinator.halves import Halves
from coordinator.hello import Terms
from coordinator.layer_inputs import LayerInputs
from coordinator.members import Members
from coordinator.options import parsed
from coordinator.planner import Planner
from coordinator.profile import F64
from coordinator.profile_keeper import Keeper
from coordinator.service import Service
from expert_worker.bank import ExpertBank
from protocol.ending import exit_code
from protocol.errors import ConfigError
from protocol.keys import ListenKeys
from protocol.model import Model
from protocol.stock import Stock
from protocol.wire import Bound, Publisher, longest_work_frame, wait
from protocol.wording import counted

log = logging.getLogger(__name__)

STOP_S = 2.0
"""Time for the workers to say that they leave."""
FLUSH_S = 0.5
"""Time for last messages to be sent."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process; returns its exit code."""
    options = parsed(arguments)
    if options.parent is not None and not native.die_with_parent(options.parent):
        return 0  # nobody is left who wanted it
    logging.basicConfig(level=options.log.upper(), format="%(asctime)s %(levelname)s %(message)s")
    return exit_code(lambda: _run(options), "the coordinator")


def _run(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        keys = None if options.keys is None else ListenKeys.load(options.keys)
        control = stack.enter_context(Bound(options.listen, keys=keys))
        model = stack.enter_context(Model.open(options.model))
        keeper = None if options.profile is None else Keeper(options.profile, model)
        rank = None if keeper is None else keeper.rank
        pool = native.Pool(options.threads)
        devices = stack.enter_context(
            opened(options.device, options.vram_gib, model, pool, max_rows=options.chunk, kv=options.kv, rank=rank)
        )
        longest = longest_work_frame(model.geometry.width)
        work = stack.enter_context(Bound(work_endpoint(options.listen), keys=keys, max_frame_bytes=longest))
        publisher = stack.enter_context(Publisher(inputs_endpoint(options.listen), keys=keys))
        log.info("listening on %s", control.endpoint)
        terms = Terms(
            session=secrets.token_hex(8),
            fingerprint=model.fingerprint,
            geometry=model.geometry.handshake(),
            work=work.endpoint,
            inputs=publisher.endpoint,
            beat_s=options.beat_s,
        )
        cluster = Cluster(
            control,
            work,
            _members(options, terms, model, devices, keeper),
            wait=lambda timeout_s: wait((work, control), timeout_s, beside=(publisher,)),
            limits=CallLimits(floor_s=options.call_floor_ms / 1000, hedge_floor_s=options.hedge_floor_ms / 1000),
        )
        _stop_on_signals(cluster)
        bank = stack.enter_context(ExpertBank(model, pool))
        halves = Halves.of(options.halves, socket.gethostname(), options.device, model.geometry)
        last_layer = model.geometry.expert_layers[-1]
        inputs = LayerInputs(publisher=publisher, session=terms.session, last_layer=last_layer)
        auditor = Auditor(bank, model.layout, options.audit)
        own_bank = None if options.no_local_experts else bank  # which then only tries others
        experts = MeshExperts(cluster, own_bank, model.layout, devices.slots, halves, inputs, auditor)
        engine = Engine(model, experts, devices.dense, None if keeper is None else keeper.recorder)
        stack.callback(engine.close)
        service = Service(
            cluster,
            engine,
            experts,
            chunk=options.chunk,
            threads=options.threads,
            model=os.fsencode(model.files.path.name).decode("utf-8", "replace"),
            device=devices.name,
            drafts=options.drafts,
            keeper=keeper,
            canaries=Canaries(cluster, auditor, model.layout) if options.canaries else None,
        )
        loaded()
        try:
            _fill(devices, service, cluster)
            _serve(service, cluster, options)
        finally:
            service.end("the coordinator is stopping")
            if keeper is not None:
                keeper.save()
            cluster.stop(STOP_S)
            cluster.close(FLUSH_S)


def _members(
    options: argparse.Namespace, terms: Terms, model: Model, devices: Devices, keeper: Keeper | None
) -> Members:
    planner = Planner(
        stock=Stock.of(model.layout),
        own=devices.own,
        rank=None if keeper is None else keeper.rank,
        demand=Demand.of(_counts(keeper, model), model.geometry.experts_used),
        replicas=options.replicas,
        even=options.placement == "even",
    )
    return Members(
        terms,
        planner,
        expected=options.workers,
        fresh_token=lambda: secrets.token_hex(16),
        settle_s=options.resume,
        host=socket.gethostname(),
        local=not options.no_local_experts,
    )


def _counts(keeper: Keeper | None, model: Model) -> F64:
    """(layers, experts): how often each was used; 0 if that was not counted."""
    if keeper is not None:
        return keeper.recorder.profile().counts
    return np.zeros((len(model.layout.layers), model.layout.experts))


def _fill(devices: Devices, service: Service, cluster: Cluster) -> None:
    """Copy experts to the device; workers can join meanwhile, and clients ask."""
    for _ in devices.fill():
        service.attend()
        if cluster.closing:
            return


def _serve(service: Service, cluster: Cluster, options: argparse.Namespace) -> None:
    deadline = math.inf if options.resume is not None else time.monotonic() + options.ready_within
    while not cluster.closing:
        service.turn()
        if not service.ready and time.monotonic() > deadline:
            raise ConfigError(_who_is_missing(cluster, options))


def _who_is_missing(cluster: Cluster, options: argparse.Namespace) -> str:
    held = set(cluster.members.assignment.active.members)
    joined = f"{sum(member.holds for member in cluster.members)} of {counted(options.workers, 'worker')}"
    parts = [f"{joined} joined within {options.ready_within:g} s"]
    for member in filter(lambda member: member.holds, cluster.members):
        if member.failed:
            parts.append(f"{member.name} {member.failed}")
        elif member.serial not in held:
            parts.append(f"{member.name} has {member.progress[0]} of {member.progress[1]} layers ready")
    parts += [f"{name} is gone: {reason}" for name, (_, reason) in cluster.members.gone.items()]
    return "; ".join(parts)


def _stop_on_signals(cluster: Cluster) -> None:
    def stop(number: int, frame: object) -> None:
        cluster.closing = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


if __name__ == "__main__":
    sys.exit(main())
