// Tiles of unquantised weights: 16 lanes of columns, joined in a tree.
#pragma once

#include <immintrin.h>

#include "blocks.h"
#include "kernels.h"

namespace {

inline __m256 load8(blocks::F32, const uint8_t *w) { return _mm256_loadu_ps((const float *)w); }
inline __m256 load8(blocks::F16, const uint8_t *w) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w)); }
inline __m256 load8(blocks::BF16, const uint8_t *w) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)w)), 16));
}

inline float join_lanes(__m256 low, __m256 high) {
    __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Adds the columns after the last full 16 to their lanes.
template <class Type>
inline void add_tail(const uint8_t *w, const float *x, int from, int columns, __m256 &low, __m256 &high) {
    if (from == columns) return;
    alignas(32) float lane[exact::LANES];
    _mm256_store_ps(lane, low);
    _mm256_store_ps(lane + 8, high);
    for (int i = from; i < columns; i++) lane[i - from] = exact::fused(Type::weight(w, i), x[i], lane[i - from]);
    low = _mm256_load_ps(lane);
    high = _mm256_load_ps(lane + 8);
}

template <class Type>
void float_tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    constexpr int TOGETHER = 4; // rows in flight hide the fma's latency
    int full = columns / exact::LANES * exact::LANES;
    for (int a = 0; a < n_acts; a++) {
        const float *x = acts[a].values;
        for (int r0 = 0; r0 < rows; r0 += TOGETHER) {
            int count = rows - r0 < TOGETHER ? rows - r0 : TOGETHER;
            const uint8_t *row[TOGETHER];
            __m256 low[TOGETHER], high[TOGETHER];
            for (int k = 0; k < TOGETHER; k++) {
                row[k] = w + (size_t)(r0 + (k < count ? k : 0)) * stride;
                low[k] = high[k] = _mm256_setzero_ps();
            }
            for (int i = 0; i < full; i += exact::LANES) {
                __m256 x0 = _mm256_loadu_ps(x + i), x1 = _mm256_loadu_ps(x + i + 8);
                for (int k = 0; k < TOGETHER; k++) {
                    const uint8_t *at = row[k] + (size_t)i * Type::BYTES;
                    low[k] = _mm256_fmadd_ps(load8(Type{}, at), x0, low[k]);
                    high[k] = _mm256_fmadd_ps(load8(Type{}, at + 8 * Type::BYTES), x1, high[k]);
                }
            }
            for (int k = 0; k < count; k++) {
                add_tail<Type>(row[k], x, full, columns, low[k], high[k]);
                out[a * TILE_ROWS + r0 + k] = join_lanes(low[k], high[k]);
            }
        }
    }
}

} // namespace
