"""The pieces of a model are all bytes of its experts, each once, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import MODELS, small_model

import expert_worker.weights.grid as grid_module
from expert_worker.weights.grid import Grid
from protocol.layout import ROLES
from protocol.model import Model


def grid_of(model: Model) -> Grid:
    return Grid(model.layout, [file.path.name for file in model.files.files])


@pytest.mark.parametrize("piece_bytes", [1 << 20, 1000])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_pieces_are_all_bytes_of_all_experts_once(
    name: str, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_module, "MAX_PIECE_BYTES", piece_bytes)
    with Model.open(small_model(name, tmp_path)) as model:
        grid = grid_of(model)
        covered = np.zeros(model.files.files[0].file.size, np.uint8)
        expected = covered.copy()
        for number, piece in enumerate(grid.ranges()):
            assert 1 <= piece.bytes <= piece_bytes
            covered[piece.offset : piece.offset + piece.bytes] += 1
            layer, expert, role = grid.owner(number)
            assert number in grid.of(layer, np.array([expert]))
            tensor = model.layout.layers[layer]
            assert tensor is not None
            its = tensor.roles[ROLES.index(role)]
            assert its.offset + expert * its.expert_bytes <= piece.offset
            assert piece.offset + piece.bytes <= its.offset + (expert + 1) * its.expert_bytes
        for each in model.layout.role_tensors():
            expected[each.offset : each.offset + each.expert_bytes * model.layout.experts] = 1
        np.testing.assert_array_equal(covered, expected)


def test_missing_bytes_are_those_of_wanted_experts_that_are_not_there(tmp_path: Path) -> None:
    with Model.open(small_model("dense-first", tmp_path)) as model:  # whose first layer has no experts
        grid, layers = grid_of(model), len(model.layout.layers)
        wanted, there = np.zeros((layers, model.layout.experts), np.uint8), np.zeros(grid.count, np.uint8)
        assert grid.missing_bytes(there, wanted) == 0
        wanted[1, 2] = wanted[2, 0] = 1
        blobs = [layer.blob_bytes for _, layer in model.layout.with_experts()]
        assert grid.missing_bytes(there, wanted) == blobs[0] + blobs[1]
        there[grid.of(1, np.array([2]))] = 1
        assert grid.missing_bytes(there, wanted) == blobs[1]
        there[grid.of(2, np.array([0]))[1:]] = 1
        assert grid.missing_bytes(there, wanted) == grid.piece(int(grid.of(2, np.array([0]))[0])).bytes
        assert grid.span(0) == slice(0, 0)
