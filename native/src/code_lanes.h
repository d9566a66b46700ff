// Vectors of weight codes for packed tiles: each 32-bit lane holds four columns of one weight row, a byte each; as many
// lanes as `Lanes` (lanes.h) has. Every file included below offers the same:
//
// Codes            such a vector, also of int32 or of pairs of int16
// dots_below16     code[q] (0..15) holds columns 4q..4q+3 of a sub-block, x its 32 activation codes: dots of int32
// dots_below32     the same for codes 0..31
// dots_scaled      codes 0..63, columns 0..15 and 16..31 each times an integer scale: `Scales`, made by `scales_of` of
//                  pairs of int16
// dots_signed      codes -128..127; `sums` are the two int16 sums of x's halves, in one dword
#pragma once

#include "blocks.h"
#include "lanes.h"

namespace {

inline int32_t dword_at(const void *p) {
    int32_t v;
    memcpy(&v, p, 4);
    return v;
}

inline int32_t int16_twice(int v) { return (int32_t)((uint32_t)v << 16 | (uint32_t)v); }

} // namespace

#if defined(__AVX512VNNI__)
#include "code_lanes_avx512.h"
#elif defined(__AVX2__)
#include "code_lanes_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "code_lanes_neon.h"
#else
#include "code_lanes_plain.h"
#endif
