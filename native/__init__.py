"""Kernels in C++ (docs/arithmetic.md); this package only names them."""

try:
    from native._kernels import (
        EntryRangeError,
        KvCache,
        NonFiniteError,
        Pool,
        Rows,
        Watch,
        Weights,
        add_combined,
        add_rows,
        add_sums,
        add_weighted,
        attention,
        available_isas,
        die_with_parent,
        exponential,
        isa,
        matmul,
        pack48,
        rms_norm,
        rope,
        rope_table,
        route,
        run_experts,
        silu,
        unpack48,
        use_isa,
    )
except ImportError as error:
    if error.name is not None:  # the module is missing, or another one
        raise
    raise ImportError(f"EXPERTMESH_ISA: {error}") from None

__all__ = [
    "EntryRangeError",
    "KvCache",
    "NonFiniteError",
    "Pool",
    "Rows",
    "Watch",
    "Weights",
    "add_combined",
    "add_rows",
    "add_sums",
    "add_weighted",
    "attention",
    "available_isas",
    "die_with_parent",
    "exponential",
    "isa",
    "matmul",
    "pack48",
    "rms_norm",
    "rope",
    "rope_table",
    "route",
    "run_experts",
    "silu",
    "unpack48",
    "use_isa",
]
