// Tiles of unquantised weights: 16 lanes of columns, joined in a tree.
#pragma once

#include "blocks.h"
#include "code_lanes.h"
#include "isa_common.h"

namespace {

inline Lanes weights_at(blocks::F32, const uint8_t *w) { return load((const float *)w); }
inline Lanes weights_at(blocks::F16, const uint8_t *w) { return halves_at(w); }
inline Lanes weights_at(blocks::BF16, const uint8_t *w) { return bf16s_at(w); }

struct Sixteen {
    Lanes part[exact::LANES / WIDE];
};

// The sum of 16 lanes, after the columns beyond the last full 16 have been added to theirs.
template <class Type>
inline float join_lanes(const Sixteen &lanes, const uint8_t *w, const float *x, int from, int to) {
    float lane[exact::LANES];
    for (int p = 0; p < exact::LANES / WIDE; p++) store(lane + p * WIDE, lanes.part[p]);
    for (int i = from; i < to; i++) lane[i - from] = exact::fused(Type::weight(w, i), x[i], lane[i - from]);
    for (int width = exact::LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

template <class Type>
void float_tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    constexpr int PARTS = exact::LANES / WIDE;
    constexpr int TOGETHER = PARTS == 1 ? 8 : 4; // rows in flight hide the fma's latency
    int full = columns / exact::LANES * exact::LANES;
    for (int a = 0; a < n_acts; a++) {
        const float *x = acts[a].values;
        for (int r0 = 0; r0 < rows; r0 += TOGETHER) {
            int count = rows - r0 < TOGETHER ? rows - r0 : TOGETHER;
            const uint8_t *row[TOGETHER];
            Sixteen sum[TOGETHER];
            for (int k = 0; k < TOGETHER; k++) {
                row[k] = w + (size_t)(r0 + (k < count ? k : 0)) * stride;
                for (int p = 0; p < PARTS; p++) sum[k].part[p] = all(0.0f);
            }
            for (int i = 0; i < full; i += exact::LANES) {
                for (int p = 0; p < PARTS; p++) {
                    int column = i + p * WIDE;
                    Lanes value = load(x + column);
                    for (int k = 0; k < TOGETHER; k++) {
                        Lanes weight = weights_at(Type{}, row[k] + (size_t)column * Type::BYTES);
                        sum[k].part[p] = fused(weight, value, sum[k].part[p]);
                    }
                }
            }
            for (int k = 0; k < count; k++)
                out[a * TILE_ROWS + r0 + k] = join_lanes<Type>(sum[k], row[k], x, full, columns);
        }
    }
}

} // namespace
