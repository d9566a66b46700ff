"""What rows ask of experts: how often each is used, and sampled rows to try placements on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from coordinator.profile import F64
from coordinator.sampled_rows import expected_use, sampled_rows
from protocol.messages import I32

SAMPLES = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Of rows of one model."""

    use: F64
    """(layers, experts): entries of one row that each gets on average."""
    rows: I32
    """(layers, SAMPLES, k): experts of rows as they may come."""

    @classmethod
    def of(cls, counts: F64, chosen: int, samples: int = SAMPLES) -> Self:
        """As a profile has `counts` (layers, experts): all 0 if nothing was counted. `chosen` experts for each row."""
        return cls(use=expected_use(counts, chosen), rows=sampled_rows(counts, chosen, samples))

    @classmethod
    def even(cls, layers: int, experts: int, chosen: int) -> Self:
        """All experts alike."""
        return cls.of(np.zeros((layers, experts)), chosen)
