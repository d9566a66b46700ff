"""Routers and norms as they lie in a model's file, a pack or a share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from local_engine import local_engine
from packs import pack_of, shares_of

from coordinator.engine import Chunk
from expert_worker.lookahead.predict import Seen
from expert_worker.lookahead.routers import Routers
from protocol.errors import ModelError
from protocol.model import Model


def test_they_are_the_files_where_it_has_fp32(demo_model: Path) -> None:
    with Model.open(demo_model) as model:
        routers, of = Routers.of(model), model.geometry
        assert (routers.experts, routers.chosen, routers.layers) == (of.experts, of.experts_used, (0, 1, 2, 3, 4, 5))
        for layer in routers.layers:
            assert routers.weights[layer].shape == (of.experts, of.width)
            assert routers.norms[layer].shape == (of.width,)
            assert routers.weights[layer].dtype == routers.norms[layer].dtype == np.float32
            tensor = model.files.tensor(f"blk.{layer}.ffn_gate_inp.weight")
            assert np.shares_memory(routers.weights[layer], tensor.data)
            np.testing.assert_array_equal(routers.weights[layer].ravel().view(np.uint8), tensor.data)


def test_on_its_own_input_a_router_chooses_what_was_chosen(demo_model: Path) -> None:
    chosen = []
    with Model.open(demo_model) as model, local_engine(demo_model, kv="f32", threads=1) as engine:
        seen, inner = Seen(Routers.of(model)), engine._experts.begin_layer

        def begin_layer(step, layer, rows, ids, weights, sums):  # type: ignore[no-untyped-def]
            codes, scales = rows.quantise()
            values = (codes.reshape(1, -1, 32) * scales[:, :, None]).reshape(1, -1)
            chosen.append((seen.used(layer, values).tolist(), np.unique(ids).tolist()))
            inner(step, layer, rows, ids, weights, sums)

        engine._experts.begin_layer = begin_layer  # type: ignore[method-assign]
        sequence = engine.new_sequence([3], 40)
        for token in range(30):
            engine.step([Chunk(sequence=sequence, ids=[100 + token])])
    assert len(chosen) == 30 * 6
    both = [len({*found} & {*used}) for found, used in chosen]
    assert all(len(found) == len(used) == 4 for found, used in chosen)
    assert sum(both) > 0.97 * 4 * len(chosen)  # it was quantised since


def test_a_pack_has_them_and_a_share_does_not(tiny_model: Path, tmp_path: Path) -> None:
    with Model.open(tiny_model) as model, Model.open(pack_of(tiny_model, tmp_path / "pack.gguf")) as pack:
        whole, packed = Routers.of(model), Routers.of(pack)
        for layer in whole.layers:
            np.testing.assert_array_equal(whole.weights[layer], packed.weights[layer])
    said = "share 1 of 2 of the experts of 'tiny.gguf', for a worker; the lookahead process needs the routers"
    half = shares_of(tiny_model, tmp_path / "shares", 2)[0]
    with Model.open(half) as share, pytest.raises(ModelError, match=said):
        Routers.of(share)
