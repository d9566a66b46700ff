// Vectors of weight codes for packed tiles: each 32-bit lane holds four columns of one weight row, a byte each; as many
// lanes as `Lanes` (lanes.h) has. Every file included below offers the same:
//
// Codes            such a vector, also of int32 or of pairs of int16
// half_below16     code[q] (0..15) holds columns 4q..4q+3 of half a sub-block, x its 16 activation codes: their dots,
// to
//                  be made int32 dots of the sub-block by `whole_below16` of both halves
// half_below32     the same for codes 0..31, int32 dots that only need be added
// half_scaled      the same for codes 0..63, times the integer scale of this half: `pairs` has those of both, as int16
// half_signed      for codes -128..127; `whole_signed` takes the two int16 sums of x's halves as well, in one dword
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
