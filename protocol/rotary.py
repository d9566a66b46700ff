"""How positions become angles: the constants of the rotary embedding and of its scaling, read from a model's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from protocol.model_keys import ModelKeys


class RopeScaling(StrEnum):
    """Ways to use more positions than a model was first made for, as `rope.scaling.type` names them."""

    NONE = "none"
    LINEAR = "linear"
    YARN = "yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """Constants of the rotary position embedding; `coordinator.rope` makes frequencies of them."""

    base: float
    """Column pair i of head_dim / 2 turns by base ** (-2 i / head_dim) per position, before scaling. Above 1."""
    scaling: RopeScaling = RopeScaling.NONE
    factor: float = 1.0
    """linear: all pairs turn slower by it; yarn: those do that turn seldom. At least 1, and 1 without scaling."""
    original_context: int = 1
    """yarn: positions before the scaling, in which turns are counted."""
    beta_fast: float = 32.0
    """yarn: pairs that turn more often keep their frequency."""
    beta_slow: float = 1.0
    """yarn: pairs that turn less often are slowed by the whole factor."""
    attention_factor: float = 1.0
    """Queries and keys are multiplied by it, besides what yarn itself does."""

    @classmethod
    def of(cls, keys: ModelKeys, context: int) -> Self:
        """Read and check: ModelError names the key. A type that nobody knows is left to `trivial`."""
        factor = _factor(keys)
        # A factor without a type is a linear one, as in files from before there were types.
        found = keys.text("rope.scaling.type", RopeScaling.NONE if factor == 1 else RopeScaling.LINEAR)
        scaling = next((one for one in RopeScaling if one == found), RopeScaling.NONE)
        if found == RopeScaling.NONE and factor != 1:
            raise keys.wrong("rope.scaling.factor", factor, "1, for the scaling's type is none")
        rotary = cls(
            base=keys.number("rope.freq_base", 10_000.0, above=1),
            scaling=scaling,
            factor=factor,
            original_context=keys.size_or("rope.scaling.original_context_length", context),
            beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
            attention_factor=keys.number("rope.scaling.attn_factor", 1.0),
        )
        if rotary.beta_fast <= rotary.beta_slow:
            expected = f"a number above {rotary.beta_slow:g}, which is yarn_beta_slow"
            raise keys.wrong("rope.scaling.yarn_beta_fast", rotary.beta_fast, expected)
        return rotary

    def trivial(self, head_dim: int) -> Mapping[str, tuple[Any, ...]]:
        """Keys that are not computed, or not with every value, each with the values that are right."""
        return {
            "rope.dimension_count": (head_dim,),
            "rope.dimension_sections": (),
            "rope.scaling.type": tuple(RopeScaling),
            "rope.scaling.alpha": (0, 1),
            "rope.scaling.yarn_attn_factor": (1,),
            "rope.scaling.yarn_ext_factor": (-1, 1 if self.scaling == RopeScaling.YARN else 0),  # -1 is unset
            "rope.scaling.yarn_log_multiplier": (0,),
        }


def _factor(keys: ModelKeys) -> float:
    """Under its name, or its old one; two that differ are a contradiction."""
    factor = keys.factor("rope.scaling.factor")
    if "rope.scale_linear" not in keys:
        return factor
    old = keys.factor("rope.scale_linear")
    if "rope.scaling.factor" in keys and old != factor:
        raise keys.wrong("rope.scale_linear", old, f"{factor:g}, which is rope.scaling.factor")
    return old
