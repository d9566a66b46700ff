"""Packs and shares of models, made in this process."""

from __future__ import annotations

from pathlib import Path

from coordinator.packing import write_pack
from coordinator.placement import share_of
from protocol.messages import U8
from protocol.model import Model
from protocol.pack import Share
from protocol.pack_plan import PackPlan
from protocol.stock import Stock


def plan_of(model: Model, share: Share | None = None, there: U8 | None = None) -> PackPlan:
    """What the command line plans; with `there`, a share of these experts."""
    if share is not None and there is None:
        there = share_of(Stock.of(model.layout), share)
    return PackPlan.of(model, share, there)


def pack_of(path: Path, out: Path, share: Share | None = None, there: U8 | None = None) -> Path:
    """A pack of the model at `path`, which is returned."""
    with Model.open(path) as model:
        for _ in write_pack(model, plan_of(model, share, there), out):
            pass
    return out


def shares_of(path: Path, folder: Path, count: int) -> list[Path]:
    """Packs of all `count` shares of a model."""
    folder.mkdir(exist_ok=True)
    shares = [Share(number=number, count=count) for number in range(1, count + 1)]
    return [pack_of(path, folder / f"{share.number}-of-{count}.gguf", share) for share in shares]
