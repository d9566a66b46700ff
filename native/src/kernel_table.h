// The table of one instruction set. Included last by its isa_*.cpp, which has defined or included everything named
// here, each for itself; only row tiles of quantised weights have other names in each.
#pragma once

#include "kernels.h"

namespace {

constexpr Kernels kernel_table(const char *name, const OfTypes<TileFn> &rows) {
    return {
        .name = name,
        .f32 = float_tile<blocks::F32>,
        .f16 = float_tile<blocks::F16>,
        .bf16 = float_tile<blocks::BF16>,
        .rows = rows,
        .packed = packed_tiles(),
        .quantise = quantise_row,
        .half_to_float = half_to_float,
        .float_to_half = float_to_half,
        .exponential = exponential_all,
        .silu = silu_all,
        .silu_times = silu_times_all,
        .add = add_all,
        .norm_scale = norm_scale_all,
        .weigh = weigh_all,
        .add_fixed = add_fixed_all,
        .rotate = rotate_all,
        .attend_block = attend_block,
    };
}

} // namespace
