// The kernels for AVX2 and, with EXPERTMESH_AVX512, AVX-512 VNNI. In tiles of quantised weights lanes are weight rows
// when activation scales are applied, so the sequence of fp32 operations in each lane is exactly the scalar path's.
#pragma once

#include <immintrin.h>

#include "attend_block.h"
#include "block_types_x86.h"
#include "float_tiles.h"
#include "isa_common.h"
#include "packed_tiles.h"

namespace {

void half_to_float(const uint16_t *x, float *y, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
    for (; i < n; i++) y[i] = exact::from_half(x[i]);
}

void float_to_half(const float *x, uint16_t *y, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) y[i] = exact::to_half(x[i]);
}

EM_INLINE void transpose8(__m256 m[8]) {
    __m256 a[8], b[8];
    EM_UNROLL for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_ps(m[2 * i], m[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(m[2 * i], m[2 * i + 1]);
    }
    EM_UNROLL for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    EM_UNROLL for (int i = 0; i < 4; i++) {
        m[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        m[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

// The next tile's bytes lie behind this one's: asked for here line by line, since eight interleaved rows of about a
// kilobyte each are too short for the processor's own prefetchers (measured: two to three times as fast from memory).
EM_INLINE void prefetch_lines(const uint8_t *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) _mm_prefetch((const char *)from + at, _MM_HINT_T0);
}

template <class Type> constexpr int WHOLE_BYTES = exact::BLOCK / Type::Stored::COLUMNS * Type::Stored::BYTES;

// Adds one block of eight rows, of `subs` sub-blocks, to `total`; what is needed a tile later lies at `next`.
template <class Type, int ACTS>
EM_INLINE void add_block(const uint8_t *w, size_t stride, int rows, int subs, int start, const Act *acts,
                         __m256 total[ACTS], const uint8_t *next) {
    const size_t bytes = (size_t)subs * exact::SUB / Type::Stored::COLUMNS * Type::Stored::BYTES;
    __m256 sub[ACTS][TILE_ROWS]; // [activation][weight row], lanes are sub-blocks
    for (int r = 0; r < TILE_ROWS; r++) {
        prefetch_lines(next + r * bytes, bytes); // between the arithmetic, not all at once: see packed_tiles.h
        Type block = Type::load(w + (size_t)(r < rows ? r : rows - 1) * stride, subs);
        for (int a = 0; a < ACTS; a++) sub[a][r] = Type::dot(block, acts[a].codes + start, acts[a].sums16 + start / 16);
    }
    for (int a = 0; a < ACTS; a++) {
        transpose8(sub[a]); // now [sub-block], lanes are weight rows
        const float *scale = acts[a].scales + start / exact::SUB;
        __m256 sum = _mm256_setzero_ps();
        EM_UNROLL for (int j = 0; j < subs; j++) sum = _mm256_fmadd_ps(_mm256_broadcast_ss(scale + j), sub[a][j], sum);
        total[a] = _mm256_add_ps(total[a], sum);
    }
}

// For a number of activations known to the compiler.
template <class Type, int ACTS>
void tile_of_acts(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, float *out) {
    __m256 total[ACTS];
    const uint8_t *next = w + TILE_ROWS * stride;
    for (int a = 0; a < ACTS; a++) total[a] = _mm256_setzero_ps();
    int start = 0;
    for (; start + exact::BLOCK <= columns; start += exact::BLOCK) {
        add_block<Type, ACTS>(w, stride, rows, exact::BLOCK / exact::SUB, start, acts, total, next);
        next += TILE_ROWS * WHOLE_BYTES<Type>;
        w += WHOLE_BYTES<Type>;
    }
    if (int subs = (columns - start) / exact::SUB; Type::Stored::COLUMNS == exact::SUB && subs > 0) {
        add_block<Type, ACTS>(w, stride, rows, subs, start, acts, total, next);
    }
    for (int a = 0; a < ACTS; a++) _mm256_storeu_ps(out + a * TILE_ROWS, total[a]);
}

template <class Type>
void quantised_tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    switch (n_acts) {
    case 1: return tile_of_acts<Type, 1>(w, stride, rows, columns, acts, out);
    case 2: return tile_of_acts<Type, 2>(w, stride, rows, columns, acts, out);
    case 3: return tile_of_acts<Type, 3>(w, stride, rows, columns, acts, out);
    default: return tile_of_acts<Type, 4>(w, stride, rows, columns, acts, out);
    }
}

constexpr OfTypes<TileFn> quantised_tiles() {
    return {
        .q4_0 = quantised_tile<Q4_0>,
        .q4_1 = quantised_tile<Q4_1>,
        .q5_0 = quantised_tile<Q5_0>,
        .q5_1 = quantised_tile<Q5_1>,
        .q8_0 = quantised_tile<Q8_0>,
        .q4_k = quantised_tile<Q4_K>,
        .q5_k = quantised_tile<Q5_K>,
        .q6_k = quantised_tile<Q6_K>,
    };
}

} // namespace

#include "kernel_table.h"
