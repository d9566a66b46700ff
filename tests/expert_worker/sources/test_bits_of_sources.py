"""No source, no budget, no hint and no shortage of memory changes a bit; and a changed file is never computed from."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from open_bank import open_bank
from packs import pack_of
from source_cases import BLOB, EXPERTS, LAYERS, SOURCES, make_ready, small_model, sums_of

from protocol.errors import ExpertError
from protocol.messages import I64

GROUPS = ([0], [1, 4, 7], [2, 3], list(range(EXPERTS)))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small file of this test's own, which it may damage."""
    return small_model(tmp_path)


def everything(path: Path, source: str) -> list[I64]:
    """What every group of experts of every layer makes, in a run that comes back to each."""
    with open_bank(path, source=SOURCES[source]) as bank:
        make_ready(bank)
        return [sums_of(bank, layer, group) for _ in range(2) for group in GROUPS for layer in range(LAYERS)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("types", [("Q4_0", "Q4_0", "Q8_0"), ("F16", "Q5_1", "F32")])
def test_every_source_gives_the_same_bits(tmp_path: Path, source: str, types: tuple[str, str, str]) -> None:
    gate, up, down = types
    path = small_model(tmp_path, gate_type=gate, up_type=up, down_type=down)
    for found, expected in zip(everything(path, source), everything(path, "mapped"), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("source", SOURCES)
def test_of_a_pack_too(model: Path, tmp_path: Path, source: str) -> None:
    pack = pack_of(model, tmp_path / "pack.gguf")
    for found, expected in zip(everything(pack, source), everything(model, "mapped"), strict=True):
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), source=st.sampled_from(sorted(SOURCES)))
def test_hints_and_shortage_at_any_moment_change_nothing(model: Path, data: st.DataObject, source: str) -> None:
    some = st.lists(st.integers(0, EXPERTS - 1), min_size=1, unique=True).map(sorted)
    steps = data.draw(st.lists(st.tuples(st.sampled_from(["run", "warm", "shed"]), some, st.integers(0, LAYERS - 1))))
    with open_bank(model) as plain, open_bank(model, source=SOURCES[source]) as bank:
        make_ready(bank)
        for what, experts, layer in steps:
            if what == "run":
                np.testing.assert_array_equal(sums_of(bank, layer, experts), sums_of(plain, layer, experts))
            elif what == "warm":
                bank.source.warm(layer, np.array(experts, np.int32))
            else:
                bank.source.shed(len(experts) * BLOB)


@pytest.mark.parametrize("source", SOURCES)
def test_hints_and_shortage_in_other_threads_change_nothing(model: Path, source: str) -> None:
    done = threading.Event()
    with open_bank(model) as plain, open_bank(model, source=SOURCES[source]) as bank:
        make_ready(bank)

        def disturb() -> None:
            random = np.random.default_rng(1)
            while not done.is_set():
                bank.source.warm(int(random.integers(LAYERS)), random.permutation(EXPERTS)[:3].astype(np.int32))
                if random.random() < 0.1:
                    bank.source.shed(BLOB)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            expected = [[sums_of(plain, layer, group) for group in GROUPS] for layer in range(LAYERS)]
            for turn in range(60):
                layer, group = turn % LAYERS, turn % len(GROUPS)
                np.testing.assert_array_equal(sums_of(bank, layer, GROUPS[group]), expected[layer][group])
        finally:
            done.set()
            thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("source", SOURCES)
def test_a_truncated_file_names_the_expert_or_was_copied_before(model: Path, source: str) -> None:
    with open_bank(model) as plain:
        expected = sums_of(plain, 1, [3])
    with open_bank(model, source=SOURCES[source]) as bank:
        make_ready(bank)
        os.truncate(model, 4096)
        if source in ("all copied", "shared"):
            np.testing.assert_array_equal(sums_of(bank, 1, [3]), expected)
            return
        for layer, expert in ((1, 3), (2, 7)):  # of which one may be copied, not both
            if bank.table.placed[layer, expert]:
                continue
            with pytest.raises(
                ExpertError, match=rf"layer {layer}, expert {expert}: .*small\.gguf changed while in use"
            ):
                sums_of(bank, layer, [expert])


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_that_changed_is_not_copied(model: Path, source: str) -> None:
    with open_bank(model, source=SOURCES[source]) as bank:
        os.utime(model, ns=(1, 1))
        with pytest.raises(ExpertError, match="changed while in use"):
            make_ready(bank)
        assert bank.counts()["copied_experts"] == 0
