// Tiles for AVX2 and, with EXPERTMESH_AVX512, AVX-512 VNNI. Lanes are weight rows when scales are applied, so the
// sequence of fp32 operations in each lane is exactly the scalar path's.
#pragma once

#include <immintrin.h>

#include "attend_block.h"
#include "isa_common.h"

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

inline float half_at(const uint8_t *p) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(blocks::u16_at(p)))); }

// --- unquantised weights: 16 lanes of columns, joined in a tree ---------------------------------------------------

struct F32 {
    static constexpr int bytes = 4;
    static __m256 load8(const uint8_t *w) { return _mm256_loadu_ps((const float *)w); }
    static float load1(const uint8_t *w) {
        float v;
        memcpy(&v, w, 4);
        return v;
    }
};

struct F16 {
    static constexpr int bytes = 2;
    static __m256 load8(const uint8_t *w) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w)); }
    static float load1(const uint8_t *w) { return exact::from_half(blocks::u16_at(w)); }
};

struct BF16 {
    static constexpr int bytes = 2;
    static __m256 load8(const uint8_t *w) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)w)), 16));
    }
    static float load1(const uint8_t *w) { return exact::from_bf16(blocks::u16_at(w)); }
};

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
    for (int i = from; i < columns; i++)
        lane[i - from] = exact::fused(Type::load1(w + (size_t)i * Type::bytes), x[i], lane[i - from]);
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
                    const uint8_t *at = row[k] + (size_t)i * Type::bytes;
                    low[k] = _mm256_fmadd_ps(Type::load8(at), x0, low[k]);
                    high[k] = _mm256_fmadd_ps(Type::load8(at + 8 * Type::bytes), x1, high[k]);
                }
            }
            for (int k = 0; k < count; k++) {
                add_tail<Type>(row[k], x, full, columns, low[k], high[k]);
                out[a * TILE_ROWS + r0 + k] = join_lanes(low[k], high[k]);
            }
        }
    }
}

// --- quantised weights --------------------------------------------------------------------------------------------

#define EM_UNROLL _Pragma("GCC unroll 8")
#define EM_INLINE static inline __attribute__((always_inline))

// Eight int32 partial dots of 32 unsigned by 32 signed bytes; pairs of products stay within int16 for every type here.
EM_INLINE __m256i dot_bytes(__m256i u, __m256i s) {
#ifdef EXPERTMESH_AVX512
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, s);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
#endif
}

// Lane j of `low` and `high`: the sums of v[j]'s lower and upper four lanes (columns 0..15 and 16..31).
EM_INLINE void sum_halves(const __m256i v[8], __m256i &low, __m256i &high) {
    __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    low = _mm256_permute2x128_si256(a, b, 0x20);
    high = _mm256_permute2x128_si256(a, b, 0x31);
}

EM_INLINE __m256i sum_each(const __m256i v[8]) {
    __m256i low, high;
    sum_halves(v, low, high);
    return _mm256_add_epi32(low, high);
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

EM_INLINE __m256i bytes_at(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
EM_INLINE __m128i eight_bytes(uint32_t first, uint32_t second) {
    return _mm_cvtsi64_si128((long long)((uint64_t)second << 32 | first));
}

// Each type: a decoded block of one weight row, and its `dot` with an activation's codes and sums: per sub-block, the
// weight scale times the integer dot (less the minimum's part), the scalar path's `sub`.
struct Q8_0 {
    static constexpr size_t bytes_per_256 = 8 * blocks::Q8_0_BYTES;
    __m256i code[8];
    __m256 d;
    EM_INLINE Q8_0 load(const uint8_t *block) {
        Q8_0 out;
        EM_UNROLL for (int j = 0; j < 8; j++) out.code[j] = bytes_at(block + j * blocks::Q8_0_BYTES + 2);
        auto half = [block](int j) { return (short)blocks::u16_at(block + j * blocks::Q8_0_BYTES); };
        out.d = _mm256_cvtph_ps(_mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)));
        return out;
    }
    EM_INLINE __m256 dot(const Q8_0 &w, const int8_t *x, const int16_t *) {
        __m256i part[8];
        EM_UNROLL for (int j = 0; j < 8; j++) part[j] =
            dot_bytes(_mm256_abs_epi8(w.code[j]), _mm256_sign_epi8(bytes_at(x + 32 * j), w.code[j]));
        return _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(sum_each(part)));
    }
};

struct Q4_K {
    static constexpr size_t bytes_per_256 = blocks::Q4_K_BYTES;
    __m256i code[8];
    __m256 d, m;
    EM_INLINE Q4_K load(const uint8_t *block) {
        Q4_K out;
        uint32_t a, b, c; // as blocks::unpack_scales6, kept in registers
        memcpy(&a, block + 4, 4), memcpy(&b, block + 8, 4), memcpy(&c, block + 12, 4);
        const uint32_t low6 = 0x3f3f3f3fu, low4 = 0x0f0f0f0fu, low2 = 0x03030303u;
        __m128i scale = eight_bytes(a & low6, (c & low4) | (((a >> 6) & low2) << 4));
        __m128i minimum = eight_bytes(b & low6, ((c >> 4) & low4) | (((b >> 6) & low2) << 4));
        out.d = _mm256_mul_ps(_mm256_set1_ps(half_at(block)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scale)));
        out.m = _mm256_mul_ps(_mm256_set1_ps(half_at(block + 2)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(minimum)));
        const __m256i nibble = _mm256_set1_epi8(15);
        EM_UNROLL for (int c4 = 0; c4 < 4; c4++) {
            __m256i bytes = bytes_at(block + 16 + 32 * c4);
            out.code[2 * c4] = _mm256_and_si256(bytes, nibble);
            out.code[2 * c4 + 1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
        }
        return out;
    }
    EM_INLINE __m256i dots(const Q4_K &w, const int8_t *x) {
        __m256i part[8];
#ifdef EXPERTMESH_AVX512
        EM_UNROLL for (int j = 0; j < 8; j++) part[j] = dot_bytes(w.code[j], bytes_at(x + 32 * j));
        return sum_each(part);
#else
        // 16 products of at most 15 * 127 stay within int16, so the tree needs no widening until its end.
        EM_UNROLL for (int j = 0; j < 8; j++) part[j] = _mm256_maddubs_epi16(w.code[j], bytes_at(x + 32 * j));
        __m256i a = _mm256_hadd_epi16(_mm256_hadd_epi16(part[0], part[1]), _mm256_hadd_epi16(part[2], part[3]));
        __m256i b = _mm256_hadd_epi16(_mm256_hadd_epi16(part[4], part[5]), _mm256_hadd_epi16(part[6], part[7]));
        __m256i sums = _mm256_hadd_epi16(a, b);
        return _mm256_add_epi32(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(sums)),
                                _mm256_cvtepi16_epi32(_mm256_extracti128_si256(sums, 1)));
#endif
    }
    EM_INLINE __m256 dot(const Q4_K &w, const int8_t *x, const int16_t *sums16) {
        __m256 sums = _mm256_cvtepi32_ps(_mm256_madd_epi16(bytes_at(sums16), _mm256_set1_epi16(1)));
        return _mm256_fnmadd_ps(w.m, sums, _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(dots(w, x))));
    }
};

struct Q6_K {
    static constexpr size_t bytes_per_256 = blocks::Q6_K_BYTES;
    __m256i code[8];               // 0..63; the 32 that every weight is less comes off through the sums of activations
    __m256i scales, first, second; // 16 as int16; those of columns 0..15 and 16..31 of each sub-block as int32
    __m256 d;
    EM_INLINE Q6_K load(const uint8_t *block) {
        Q6_K out;
        const __m256i nibble = _mm256_set1_epi8(15), pair = _mm256_set1_epi8(0x30);
        EM_UNROLL for (int h = 0; h < 2; h++) {
            __m256i l0 = bytes_at(block + 64 * h), l1 = bytes_at(block + 64 * h + 32),
                    up = bytes_at(block + 128 + 32 * h);
            __m256i *c = out.code + 4 * h;
            c[0] = _mm256_or_si256(_mm256_and_si256(l0, nibble), _mm256_and_si256(_mm256_slli_epi16(up, 4), pair));
            c[1] = _mm256_or_si256(_mm256_and_si256(l1, nibble), _mm256_and_si256(_mm256_slli_epi16(up, 2), pair));
            c[2] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l0, 4), nibble), _mm256_and_si256(up, pair));
            c[3] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l1, 4), nibble),
                                   _mm256_and_si256(_mm256_srli_epi16(up, 2), pair));
        }
        out.scales = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(block + 192)));
        out.first = _mm256_srai_epi32(_mm256_slli_epi32(out.scales, 16), 16);
        out.second = _mm256_srai_epi32(out.scales, 16);
        out.d = _mm256_set1_ps(half_at(block + 208));
        return out;
    }
    EM_INLINE __m256 dot(const Q6_K &w, const int8_t *x, const int16_t *sums16) {
        __m256i part[8], low, high;
        EM_UNROLL for (int j = 0; j < 8; j++) part[j] = dot_bytes(w.code[j], bytes_at(x + 32 * j));
        sum_halves(part, low, high);
        __m256i scaled = _mm256_add_epi32(_mm256_mullo_epi32(low, w.first), _mm256_mullo_epi32(high, w.second));
        __m256i less = _mm256_madd_epi16(w.scales, bytes_at(sums16));
        return _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(_mm256_sub_epi32(scaled, _mm256_slli_epi32(less, 5))));
    }
};

// The next tile's bytes lie behind this one's: asked for here line by line, since eight interleaved rows of about a
// kilobyte each are too short for the processor's own prefetchers (measured: two to three times as fast from memory).
EM_INLINE void prefetch_lines(const uint8_t *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) _mm_prefetch((const char *)from + at, _MM_HINT_T0);
}

// Whole blocks of 256 columns, for a number of activations known to the compiler.
template <class Type, int ACTS>
void whole_blocks(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, float *out) {
    __m256 total[ACTS];
    const uint8_t *next = w + TILE_ROWS * stride;
    for (int a = 0; a < ACTS; a++) total[a] = _mm256_setzero_ps();
    for (int start = 0; start < columns; start += exact::BLOCK) {
        __m256 sub[ACTS][TILE_ROWS]; // [activation][weight row], lanes are sub-blocks
        prefetch_lines(next, TILE_ROWS * Type::bytes_per_256);
        next += TILE_ROWS * Type::bytes_per_256;
        for (int r = 0; r < TILE_ROWS; r++) {
            Type block = Type::load(w + (size_t)(r < rows ? r : rows - 1) * stride);
            for (int a = 0; a < ACTS; a++)
                sub[a][r] = Type::dot(block, acts[a].codes + start, acts[a].sums16 + start / 16);
        }
        for (int a = 0; a < ACTS; a++) {
            transpose8(sub[a]); // now [sub-block], lanes are weight rows
            const float *scale = acts[a].scales + start / exact::SUB;
            __m256 sum = _mm256_setzero_ps();
            EM_UNROLL for (int j = 0; j < 8; j++) sum = _mm256_fmadd_ps(_mm256_broadcast_ss(scale + j), sub[a][j], sum);
            total[a] = _mm256_add_ps(total[a], sum);
        }
        w += Type::bytes_per_256;
    }
    for (int a = 0; a < ACTS; a++) _mm256_storeu_ps(out + a * TILE_ROWS, total[a]);
}

template <class Type>
void whole_tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    switch (n_acts) {
    case 1: return whole_blocks<Type, 1>(w, stride, rows, columns, acts, out);
    case 2: return whole_blocks<Type, 2>(w, stride, rows, columns, acts, out);
    case 3: return whole_blocks<Type, 3>(w, stride, rows, columns, acts, out);
    default: return whole_blocks<Type, 4>(w, stride, rows, columns, acts, out);
    }
}

// Q8_0 alone can end in a short block: its few sub-blocks are added row by row.
void q8_0_tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    int whole = columns / exact::BLOCK * exact::BLOCK;
    whole_tile<Q8_0>(w, stride, rows, whole, acts, n_acts, out);
    if (whole == columns) return;
    for (int a = 0; a < n_acts; a++)
        for (int r = 0; r < rows; r++) {
            float sum = 0.0f;
            for (int s = whole / exact::SUB; s < columns / exact::SUB; s++) {
                const uint8_t *block = w + r * stride + (size_t)s * blocks::Q8_0_BYTES;
                int32_t dot = 0;
                for (int i = 0; i < exact::SUB; i++) dot += (int8_t)block[2 + i] * acts[a].codes[exact::SUB * s + i];
                sum = exact::fused(acts[a].scales[s], half_at(block) * (float)dot, sum);
            }
            out[a * TILE_ROWS + r] = out[a * TILE_ROWS + r] + sum;
        }
}

} // namespace

#define EXPERTMESH_X86_KERNELS(name)                                                                                   \
    {                                                                                                                  \
        name,           float_tile<F32>,  float_tile<F16>,  float_tile<BF16>,                                          \
        q8_0_tile,      whole_tile<Q4_K>, whole_tile<Q6_K>, quantise_row,                                              \
        half_to_float,  float_to_half,    exponential_all,  silu_all,                                                  \
        silu_times_all, add_all,          norm_scale_all,   rotate_all,                                                \
        attend_block}
