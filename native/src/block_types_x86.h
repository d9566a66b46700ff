// Blocks of quantised weights in vectors. `load` decodes 256 columns of one row, of which types with blocks of 32 may
// have fewer: `subs` sub-blocks. Lane j of what `dot` returns is the part of sub-block j (docs/arithmetic.md).
#pragma once

#include <immintrin.h>

#include "blocks.h"
#include "isa_common.h"

namespace {

EM_INLINE __m256i bytes_at(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
EM_INLINE __m256 half_everywhere(const uint8_t *p) {
    return _mm256_set1_ps(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(blocks::u16_at(p)))));
}

// --- integer dots -------------------------------------------------------------------------------------------------

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

// The integer dots of eight sub-blocks whose codes are 0..31.
EM_INLINE __m256i dot_codes(const __m256i code[8], const int8_t *x) {
    __m256i part[8];
#ifdef EXPERTMESH_AVX512
    EM_UNROLL for (int j = 0; j < 8; j++) part[j] = dot_bytes(code[j], bytes_at(x + 32 * j));
    return sum_each(part);
#else
    // 8 products of at most 31 * 127 stay within int16 (16 would not): the tree is widened at its last step.
    EM_UNROLL for (int j = 0; j < 8; j++) part[j] = _mm256_maddubs_epi16(code[j], bytes_at(x + 32 * j));
    __m256i a = _mm256_hadd_epi16(_mm256_hadd_epi16(part[0], part[1]), _mm256_hadd_epi16(part[2], part[3]));
    __m256i b = _mm256_hadd_epi16(_mm256_hadd_epi16(part[4], part[5]), _mm256_hadd_epi16(part[6], part[7]));
    a = _mm256_madd_epi16(a, _mm256_set1_epi16(1));
    b = _mm256_madd_epi16(b, _mm256_set1_epi16(1));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
#endif
}

// Lane j: the sum of sub-block j's activation codes.
EM_INLINE __m256i sums_of(const int16_t *sums16) { return _mm256_madd_epi16(bytes_at(sums16), _mm256_set1_epi16(1)); }

// --- what types share ---------------------------------------------------------------------------------------------

// Codes 0..15 or 0..31, each weight d times (code less the middle, 8 or 16).
template <int LOG2_MIDDLE> struct Centred {
    __m256i code[8];
    __m256 d;
    EM_INLINE __m256 dot(const Centred &w, const int8_t *x, const int16_t *sums16) {
        __m256i middle = _mm256_slli_epi32(sums_of(sums16), LOG2_MIDDLE);
        return _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(_mm256_sub_epi32(dot_codes(w.code, x), middle)));
    }
};

// Codes 0..15 or 0..31, each weight d times code plus minimum.
struct Affine {
    __m256i code[8];
    __m256 d, minimum;
    EM_INLINE __m256 dot(const Affine &w, const int8_t *x, const int16_t *sums16) {
        __m256 scaled = _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(dot_codes(w.code, x)));
        return _mm256_fmadd_ps(w.minimum, _mm256_cvtepi32_ps(sums_of(sums16)), scaled);
    }
};

// Block j of `subs` blocks of 32 columns; the last one for those that a short row lacks, whose parts nobody takes.
template <class Stored> EM_INLINE const uint8_t *block_at(const uint8_t *first, int subs, int j) {
    return first + (j < subs ? j : subs - 1) * Stored::BYTES;
}

struct Heads {
    __m256 scale, minimum;
};

// The first two fp16 numbers of eight such blocks: scales, and minimums where the type has them.
template <class Stored> EM_INLINE Heads heads(const uint8_t *first, int subs) {
    auto head = [=](int j) {
        int32_t both;
        memcpy(&both, block_at<Stored>(first, subs, j), 4);
        return _mm_cvtsi32_si128(both);
    };
    auto four = [=](int j) { // scales in the lower half, minimums in the upper one
        return _mm_unpacklo_epi32(_mm_unpacklo_epi16(head(j), head(j + 1)),
                                  _mm_unpacklo_epi16(head(j + 2), head(j + 3)));
    };
    __m128i low = four(0), high = four(4);
    return {_mm256_cvtph_ps(_mm_unpacklo_epi64(low, high)), _mm256_cvtph_ps(_mm_unpackhi_epi64(low, high))};
}

// 16 bytes of nibbles: the low ones, then the high ones.
EM_INLINE __m256i nibbles(const uint8_t *qs) {
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)qs));
    return _mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}

// 16 in byte i if bit i of the four bytes is set.
EM_INLINE __m256i fifth_bits(const uint8_t *qh) {
    uint32_t bits;
    memcpy(&bits, qh, 4);
#ifdef EXPERTMESH_AVX512
    return _mm256_maskz_set1_epi8((__mmask32)bits, 16);
#else
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16));
#endif
}

EM_INLINE __m128i eight_bytes(uint32_t first, uint32_t second) {
    return _mm_cvtsi64_si128((long long)((uint64_t)second << 32 | first));
}

// The scales and minimums of a Q4_K or Q5_K block (blocks::SixBitScales), all eight at once.
EM_INLINE void load_six_bit_scales(const uint8_t *block, Affine &out) {
    uint32_t a, b, c;
    memcpy(&a, block + 4, 4), memcpy(&b, block + 8, 4), memcpy(&c, block + 12, 4);
    const uint32_t low6 = 0x3f3f3f3fu, low4 = 0x0f0f0f0fu, low2 = 0x03030303u;
    __m128i scale = eight_bytes(a & low6, (c & low4) | (((a >> 6) & low2) << 4));
    __m128i minimum = eight_bytes(b & low6, ((c >> 4) & low4) | (((b >> 6) & low2) << 4));
    __m256 off = _mm256_mul_ps(half_everywhere(block + 2), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(minimum)));
    out.d = _mm256_mul_ps(half_everywhere(block), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scale)));
    out.minimum = _mm256_xor_ps(off, _mm256_set1_ps(-0.0f));
}

// The nibbles of a Q4_K or Q5_K block.
EM_INLINE void load_paired_nibbles(const uint8_t *qs, __m256i code[8]) {
    const __m256i low = _mm256_set1_epi8(15);
    EM_UNROLL for (int k = 0; k < 4; k++) {
        __m256i bytes = bytes_at(qs + 32 * k);
        code[2 * k] = _mm256_and_si256(bytes, low);
        code[2 * k + 1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
    }
}

// --- the types ----------------------------------------------------------------------------------------------------

struct Q4_0 : Centred<3> {
    using Stored = blocks::Q4_0;
    EM_INLINE Q4_0 load(const uint8_t *first, int subs) {
        Q4_0 out;
        EM_UNROLL for (int j = 0; j < 8; j++) out.code[j] = nibbles(block_at<Stored>(first, subs, j) + 2);
        out.d = heads<Stored>(first, subs).scale;
        return out;
    }
};

struct Q4_1 : Affine {
    using Stored = blocks::Q4_1;
    EM_INLINE Q4_1 load(const uint8_t *first, int subs) {
        Q4_1 out;
        EM_UNROLL for (int j = 0; j < 8; j++) out.code[j] = nibbles(block_at<Stored>(first, subs, j) + 4);
        Heads head = heads<Stored>(first, subs);
        out.d = head.scale;
        out.minimum = head.minimum;
        return out;
    }
};

struct Q5_0 : Centred<4> {
    using Stored = blocks::Q5_0;
    EM_INLINE Q5_0 load(const uint8_t *first, int subs) {
        Q5_0 out;
        EM_UNROLL for (int j = 0; j < 8; j++) {
            const uint8_t *block = block_at<Stored>(first, subs, j);
            out.code[j] = _mm256_or_si256(nibbles(block + 6), fifth_bits(block + 2));
        }
        out.d = heads<Stored>(first, subs).scale;
        return out;
    }
};

struct Q5_1 : Affine {
    using Stored = blocks::Q5_1;
    EM_INLINE Q5_1 load(const uint8_t *first, int subs) {
        Q5_1 out;
        EM_UNROLL for (int j = 0; j < 8; j++) {
            const uint8_t *block = block_at<Stored>(first, subs, j);
            out.code[j] = _mm256_or_si256(nibbles(block + 8), fifth_bits(block + 4));
        }
        Heads head = heads<Stored>(first, subs);
        out.d = head.scale;
        out.minimum = head.minimum;
        return out;
    }
};

struct Q8_0 {
    using Stored = blocks::Q8_0;
    __m256i code[8]; // signed
    __m256 d;
    EM_INLINE Q8_0 load(const uint8_t *first, int subs) {
        Q8_0 out;
        EM_UNROLL for (int j = 0; j < 8; j++) out.code[j] = bytes_at(block_at<Stored>(first, subs, j) + 2);
        out.d = heads<Stored>(first, subs).scale;
        return out;
    }
    EM_INLINE __m256 dot(const Q8_0 &w, const int8_t *x, const int16_t *) {
        __m256i part[8];
        EM_UNROLL for (int j = 0; j < 8; j++) part[j] =
            dot_bytes(_mm256_abs_epi8(w.code[j]), _mm256_sign_epi8(bytes_at(x + 32 * j), w.code[j]));
        return _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(sum_each(part)));
    }
};

struct Q4_K : Affine {
    using Stored = blocks::Q4_K;
    EM_INLINE Q4_K load(const uint8_t *block, int) {
        Q4_K out;
        load_six_bit_scales(block, out);
        load_paired_nibbles(block + 16, out.code);
        return out;
    }
};

struct Q5_K : Affine {
    using Stored = blocks::Q5_K;
    EM_INLINE Q5_K load(const uint8_t *block, int) {
        Q5_K out;
        load_six_bit_scales(block, out);
        load_paired_nibbles(block + 48, out.code);
        const __m256i fifth = _mm256_set1_epi8(16);
        __m256i high = bytes_at(block + 16); // bit j of a byte belongs to sub-block j
        EM_UNROLL for (int j = 0; j < 8; j++) {
            __m256i bit = j < 4 ? _mm256_slli_epi16(high, 4 - j) : _mm256_srli_epi16(high, j - 4);
            out.code[j] = _mm256_or_si256(out.code[j], _mm256_and_si256(bit, fifth));
        }
        return out;
    }
};

struct Q6_K {
    using Stored = blocks::Q6_K;
    __m256i code[8];               // 0..63; the 32 that every weight is less comes off through the sums of activations
    __m256i scales, first, second; // 16 as int16; those of columns 0..15 and 16..31 of each sub-block as int32
    __m256 d;
    EM_INLINE Q6_K load(const uint8_t *block, int) {
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
        out.d = half_everywhere(block + 208);
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

} // namespace
