// The plain path: the reading of docs/arithmetic.md that every processor can run.
#include "attend_block.h"
#include "isa_common.h"
#include "packed_tiles.h"

namespace {

void half_to_float(const uint16_t *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = exact::from_half(x[i]);
}

void float_to_half(const float *x, uint16_t *y, int n) {
    for (int i = 0; i < n; i++) y[i] = exact::to_half(x[i]);
}

// Lane i % 16 takes column i; lanes join in a tree.
template <class Type> float float_dot(const uint8_t *w, const Act &act, int columns) {
    float lane[exact::LANES] = {};
    for (int i = 0; i < columns; i++)
        lane[i % exact::LANES] = exact::fused(Type::weight(w, i), act.values[i], lane[i % exact::LANES]);
    for (int width = exact::LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

// One sub-block: weight scale times integer dot, plus the minimum's share.
template <class Type> float part(const uint8_t *block, int j, const int8_t *x, const int16_t *sums16) {
    int32_t dot = 0; // below 2^24: exact as a float too
    for (int i = 0; i < exact::SUB; i++) dot += Type::integer(block, j, i) * x[i];
    float scaled = Type::scale(block, j) * (float)dot;
    if constexpr (Type::HAS_MINIMUM)
        return exact::fused(Type::minimum(block, j), (float)(sums16[0] + sums16[1]), scaled);
    return scaled;
}

// Blocks of 256 columns, the last one may be short; in each, the activation scales of its sub-blocks join by fma.
template <class Type> float quantised_dot(const uint8_t *w, const Act &act, int columns) {
    constexpr int per_block = Type::COLUMNS / exact::SUB;
    float row = 0.0f;
    for (int start = 0; start < columns; start += exact::BLOCK) {
        int end = columns - start < exact::BLOCK ? columns : start + exact::BLOCK;
        float sum = 0.0f;
        for (int s = start / exact::SUB; s < end / exact::SUB; s++) {
            const uint8_t *block = w + (size_t)(s / per_block) * Type::BYTES;
            float of_sub = part<Type>(block, s % per_block, act.codes + exact::SUB * s, act.sums16 + 2 * s);
            sum = exact::fused(act.scales[s], of_sub, sum);
        }
        row = row + sum;
    }
    return row;
}

template <class Type> float row_dot(const uint8_t *w, const Act &act, int columns) {
    if constexpr (Type::COLUMNS == 1)
        return float_dot<Type>(w, act, columns);
    else
        return quantised_dot<Type>(w, act, columns);
}

template <class Type>
void tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    for (int a = 0; a < n_acts; a++)
        for (int r = 0; r < rows; r++) out[a * TILE_ROWS + r] = row_dot<Type>(w + r * stride, acts[a], columns);
}

} // namespace

const Kernels SCALAR_KERNELS = {
    .name = "scalar",
    .f32 = tile<blocks::F32>,
    .f16 = tile<blocks::F16>,
    .bf16 = tile<blocks::BF16>,
    .rows =
        {
            .q4_0 = tile<blocks::Q4_0>,
            .q4_1 = tile<blocks::Q4_1>,
            .q5_0 = tile<blocks::Q5_0>,
            .q5_1 = tile<blocks::Q5_1>,
            .q8_0 = tile<blocks::Q8_0>,
            .q4_k = tile<blocks::Q4_K>,
            .q5_k = tile<blocks::Q5_K>,
            .q6_k = tile<blocks::Q6_K>,
        },
    .packed = packed_tiles(),
    .quantise = quantise_row,
    .half_to_float = half_to_float,
    .float_to_half = float_to_half,
    .exponential = exponential_all,
    .silu = silu_all,
    .silu_times = silu_times_all,
    .add = add_all,
    .norm_scale = norm_scale_all,
    .rotate = rotate_all,
    .attend_block = attend_block,
};
