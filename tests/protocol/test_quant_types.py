"""Sizes of tensor types, compared with the `gguf` package's."""

from __future__ import annotations

import gguf
import pytest

from protocol.quant_types import RUNNABLE, TensorType, runnable_names


def test_every_type_of_the_reference_is_known_with_its_sizes() -> None:
    ours = {kind.name: (int(kind), kind.block_columns, kind.block_bytes) for kind in TensorType}
    theirs = {kind.name: (int(kind), *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    # A newer `gguf` may know more types than we do; none of ours may differ, and none may be ours alone.
    assert ours == {name: theirs.get(name) for name in ours}


@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [(TensorType.F32, 7, 28), (TensorType.Q8_0, 64, 68), (TensorType.Q4_K, 512, 288), (TensorType.Q6_K, 256, 210)],
)
def test_row_bytes(kind: TensorType, columns: int, expected: int) -> None:
    assert kind.row_bytes(columns) == expected


def test_a_row_that_is_no_whole_number_of_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"300 columns are no multiple of Q4_K's block of 256"):
        TensorType.Q4_K.row_bytes(300)


def test_floats_and_runnable_types() -> None:
    assert {kind.name for kind in TensorType if kind.is_float} == {"F32", "F16", "BF16"}
    assert len(RUNNABLE) == 11
    assert runnable_names() == "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16"
