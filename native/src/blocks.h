// Byte layouts of ggml's weight blocks, as stored in GGUF files.
#pragma once

#include "exact.h"

namespace blocks {

constexpr int Q8_0_BYTES = 34;  // fp16 d, 32 int8
constexpr int Q4_K_BYTES = 144; // fp16 d, fp16 dmin, 12 bytes of 6-bit scales and minimums, 128 bytes of nibbles
constexpr int Q6_K_BYTES = 210; // 128 low nibbles, 64 high pairs, 16 int8 scales, fp16 d

EM_FN uint16_t u16_at(const uint8_t *p) { return (uint16_t)(p[0] | (p[1] << 8)); }

// The eight 6-bit scales and minimums of a Q4_K (or Q5_K) block, from its 12 packed bytes.
EM_FN void unpack_scales6(const uint8_t *p, uint8_t *scale, uint8_t *minimum) {
    uint32_t a, b, c;
    memcpy(&a, p, 4);
    memcpy(&b, p + 4, 4);
    memcpy(&c, p + 8, 4);
    const uint32_t low6 = 0x3f3f3f3fu, low4 = 0x0f0f0f0fu, low2 = 0x03030303u;
    uint32_t s0 = a & low6, m0 = b & low6;
    uint32_t s1 = (c & low4) | (((a >> 6) & low2) << 4);
    uint32_t m1 = ((c >> 4) & low4) | (((b >> 6) & low2) << 4);
    memcpy(scale, &s0, 4);
    memcpy(scale + 4, &s1, 4);
    memcpy(minimum, &m0, 4);
    memcpy(minimum + 4, &m1, 4);
}

// Code 0..15 of column i (0..255) of a Q4_K block's 128 nibble bytes.
EM_FN int q4_k_code(const uint8_t *qs, int i) {
    int chunk = i >> 6, high = (i >> 5) & 1, lane = i & 31;
    uint8_t byte = qs[32 * chunk + lane];
    return high ? byte >> 4 : byte & 15;
}

// Code 0..63 of column i (0..255) of a Q6_K block (the weight is code - 32).
EM_FN int q6_k_code(const uint8_t *block, int i) {
    int half = i >> 7, quarter = (i >> 5) & 3, lane = i & 31;
    const uint8_t *low = block + 64 * half + 32 * (quarter & 1);
    uint8_t high = block[128 + 32 * half + lane];
    int nibble = quarter < 2 ? low[lane] & 15 : low[lane] >> 4;
    return nibble | (((high >> (2 * quarter)) & 3) << 4);
}

} // namespace blocks
