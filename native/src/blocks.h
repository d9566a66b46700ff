// ggml's weights as stored in GGUF files, one struct per type: how many columns and bytes a block has, and what a
// weight is. Floats have `weight`; quantised types are told in sub-blocks of 32 columns, where a weight is
// scale * integer, plus the minimum if the type has one.
#pragma once

#include "exact.h"

namespace blocks {
namespace { // a copy for each instruction set: the linker must not pick one for another (see isa_common.h)

EM_FN uint16_t u16_at(const uint8_t *p) { return (uint16_t)(p[0] | (p[1] << 8)); }
EM_FN float half_at(const uint8_t *p) { return exact::from_half(u16_at(p)); }

struct F32 {
    static constexpr int COLUMNS = 1, BYTES = 4;
    EM_FN float weight(const uint8_t *row, int i) {
        float v;
        memcpy(&v, row + 4 * (size_t)i, 4);
        return v;
    }
};

struct F16 {
    static constexpr int COLUMNS = 1, BYTES = 2;
    EM_FN float weight(const uint8_t *row, int i) { return half_at(row + 2 * (size_t)i); }
};

struct BF16 {
    static constexpr int COLUMNS = 1, BYTES = 2;
    EM_FN float weight(const uint8_t *row, int i) { return exact::from_bf16(u16_at(row + 2 * (size_t)i)); }
};

// --- blocks of 32 columns: fp16 d, fp16 minimum in some, 32 high bits in some, then the low bits -----------------

// Column `lane` (0..31) of 16 bytes of nibbles: columns 0..15 in the low ones, 16..31 in the high ones.
EM_FN int nibble(const uint8_t *qs, int lane) { return lane < 16 ? qs[lane] & 15 : qs[lane - 16] >> 4; }
EM_FN int fifth_bit(const uint8_t *qh, int lane) { return ((qh[lane >> 3] >> (lane & 7)) & 1) << 4; }

struct Q4_0 {
    static constexpr int COLUMNS = 32, BYTES = 18;
    static constexpr bool HAS_MINIMUM = false;
    EM_FN float scale(const uint8_t *block, int) { return half_at(block); }
    EM_FN int integer(const uint8_t *block, int, int lane) { return nibble(block + 2, lane) - 8; }
};

struct Q4_1 {
    static constexpr int COLUMNS = 32, BYTES = 20;
    static constexpr bool HAS_MINIMUM = true;
    EM_FN float scale(const uint8_t *block, int) { return half_at(block); }
    EM_FN float minimum(const uint8_t *block, int) { return half_at(block + 2); }
    EM_FN int integer(const uint8_t *block, int, int lane) { return nibble(block + 4, lane); }
};

struct Q5_0 {
    static constexpr int COLUMNS = 32, BYTES = 22;
    static constexpr bool HAS_MINIMUM = false;
    EM_FN float scale(const uint8_t *block, int) { return half_at(block); }
    EM_FN int integer(const uint8_t *block, int, int lane) {
        return (nibble(block + 6, lane) | fifth_bit(block + 2, lane)) - 16;
    }
};

struct Q5_1 {
    static constexpr int COLUMNS = 32, BYTES = 24;
    static constexpr bool HAS_MINIMUM = true;
    EM_FN float scale(const uint8_t *block, int) { return half_at(block); }
    EM_FN float minimum(const uint8_t *block, int) { return half_at(block + 2); }
    EM_FN int integer(const uint8_t *block, int, int lane) {
        return nibble(block + 8, lane) | fifth_bit(block + 4, lane);
    }
};

struct Q8_0 {
    static constexpr int COLUMNS = 32, BYTES = 34;
    static constexpr bool HAS_MINIMUM = false;
    EM_FN float scale(const uint8_t *block, int) { return half_at(block); }
    EM_FN int integer(const uint8_t *block, int, int lane) { return (int8_t)block[2 + lane]; }
};

// --- blocks of 256 columns ----------------------------------------------------------------------------------------

// The head that Q4_K and Q5_K share: fp16 d, fp16 dmin, then 6-bit scales and minimums of 8 sub-blocks in 12 bytes.
struct SixBitScales {
    static constexpr bool HAS_MINIMUM = true;
    EM_FN float scale(const uint8_t *block, int j) {
        const uint8_t *p = block + 4;
        return half_at(block) * (float)(j < 4 ? p[j] & 63 : (p[j + 4] & 15) | (p[j - 4] >> 6 << 4));
    }
    EM_FN float minimum(const uint8_t *block, int j) { // it is taken off: a negative one to add
        const uint8_t *p = block + 4;
        return -(half_at(block + 2) * (float)(j < 4 ? p[j + 4] & 63 : (p[j + 4] >> 4) | (p[j] >> 6 << 4)));
    }
};

// Column `lane` of sub-block j in 128 bytes of nibbles: 32 bytes hold an even sub-block low and the next one high.
EM_FN int paired_nibble(const uint8_t *qs, int j, int lane) { return qs[32 * (j >> 1) + lane] >> (4 * (j & 1)) & 15; }

struct Q4_K : SixBitScales {
    static constexpr int COLUMNS = 256, BYTES = 144; // head, nibbles
    EM_FN int integer(const uint8_t *block, int j, int lane) { return paired_nibble(block + 16, j, lane); }
};

struct Q5_K : SixBitScales {
    static constexpr int COLUMNS = 256,
                         BYTES = 176; // head, 32 bytes with the high bit of sub-block j in bit j, nibbles
    EM_FN int integer(const uint8_t *block, int j, int lane) {
        return paired_nibble(block + 48, j, lane) | ((block[16 + lane] >> j & 1) << 4);
    }
};

struct Q6_K {
    static constexpr int COLUMNS = 256, BYTES = 210; // 128 low nibbles, 64 high pairs, 16 int8 scales, fp16 d
    static constexpr bool HAS_MINIMUM = false;
    EM_FN float scale(const uint8_t *block, int) { return half_at(block + 208); }
    EM_FN int scale16(const uint8_t *block, int j, int lane) { return (int8_t)block[192 + 2 * j + lane / 16]; }
    EM_FN int centred(const uint8_t *block, int j, int lane) { // the code 0..63 less 32
        int half = j >> 2, quarter = j & 3;
        int low = block[64 * half + 32 * (quarter & 1) + lane] >> (4 * (quarter >> 1)) & 15;
        int high = block[128 + 32 * half + lane] >> (2 * quarter) & 3;
        return (low | high << 4) - 32;
    }
    EM_FN int integer(const uint8_t *block, int j, int lane) {
        return scale16(block, j, lane) * centred(block, j, lane);
    }
};

} // namespace
} // namespace blocks
