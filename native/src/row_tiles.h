// Tiles of quantised weights in the file's own rows, one sub-block of one row after another: docs/arithmetic.md read
// aloud. `Dots::of` gives the integer dot of a sub-block.
#pragma once

#include "blocks.h"
#include "kernels.h"

namespace {

// Weight scale times integer dot, plus the minimum's share.
template <class Type> float part(const uint8_t *block, int j, int32_t dot, const int16_t *sums16) {
    float scaled = Type::scale(block, j) * (float)dot; // below 2^24: exact as a float too
    if constexpr (Type::HAS_MINIMUM)
        return exact::fused(Type::minimum(block, j), (float)(sums16[0] + sums16[1]), scaled);
    return scaled;
}

// Blocks of 256 columns, the last one may be short; in each, the activation scales of its sub-blocks join by fma.
template <class Type, class Dots> float quantised_dot(const uint8_t *w, const Act &act, int columns) {
    constexpr int per_block = Type::COLUMNS / exact::SUB;
    float row = 0.0f;
    for (int start = 0; start < columns; start += exact::BLOCK) {
        int end = columns - start < exact::BLOCK ? columns : start + exact::BLOCK;
        float sum = 0.0f;
        for (int s = start / exact::SUB; s < end / exact::SUB; s++) {
            const uint8_t *block = w + (size_t)(s / per_block) * Type::BYTES;
            int32_t dot = Dots::of(Type{}, block, s % per_block, act.codes + exact::SUB * s);
            sum = exact::fused(act.scales[s], part<Type>(block, s % per_block, dot, act.sums16 + 2 * s), sum);
        }
        row = row + sum;
    }
    return row;
}

template <class Type, class Dots>
void row_tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    for (int r = 0; r < rows; r++)
        for (int a = 0; a < n_acts; a++)
            out[a * TILE_ROWS + r] = quantised_dot<Type, Dots>(w + r * stride, acts[a], columns);
}

template <class Dots> constexpr OfTypes<TileFn> row_tiles() {
    return {
        .q4_0 = row_tile<blocks::Q4_0, Dots>,
        .q4_1 = row_tile<blocks::Q4_1, Dots>,
        .q5_0 = row_tile<blocks::Q5_0, Dots>,
        .q5_1 = row_tile<blocks::Q5_1, Dots>,
        .q8_0 = row_tile<blocks::Q8_0, Dots>,
        .q4_k = row_tile<blocks::Q4_K, Dots>,
        .q5_k = row_tile<blocks::Q5_K, Dots>,
        .q6_k = row_tile<blocks::Q6_K, Dots>,
    };
}

} // namespace
