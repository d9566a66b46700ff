// Sub-blocks of 32 quantised columns as eight words of four int8 each, the form that dp4a takes. Which bits make which
// integer is told in blocks.h; here they are moved four columns at a time.
#pragma once

#include "blocks.h"

namespace {

struct alignas(16) FourWords {
    uint32_t at[4];
};

// N words from an address that is a multiple of ALIGN.
template <int ALIGN, int N> __device__ inline void read_words(const uint8_t *from, uint32_t *to) {
    if constexpr (ALIGN == 16) {
        for (int i = 0; i < N; i += 4) {
            FourWords four = *(const FourWords *)(from + 4 * i);
            for (int j = 0; j < 4; j++) to[i + j] = four.at[j];
        }
    } else if constexpr (ALIGN == 4) {
        for (int i = 0; i < N; i++) to[i] = ((const uint32_t *)from)[i];
    } else {
        const uint16_t *halves = (const uint16_t *)from;
        for (int i = 0; i < N; i++) to[i] = halves[2 * i] | (uint32_t)halves[2 * i + 1] << 16;
    }
}

// Every byte (0..127) less `by` (0..127), as int8.
__device__ inline uint32_t less(uint32_t bytes, uint32_t by) {
    return ((bytes | 0x80808080u) - by * 0x01010101u) ^ 0x80808080u;
}

// Bits 0..3 of `bits` as bit 4 of the bytes 0..3.
__device__ inline uint32_t fifth_bits(uint32_t bits) { return (((bits & 15u) * 0x00204081u) & 0x01010101u) << 4; }

// 16 bytes of nibbles: columns 0..15 in the low ones, 16..31 in the high ones.
template <int ALIGN> __device__ inline void split_nibbles(const uint8_t *qs, uint32_t *word) {
    uint32_t packed[4];
    read_words<ALIGN, 4>(qs, packed);
    for (int i = 0; i < 4; i++) {
        word[i] = packed[i] & 0x0f0f0f0fu;
        word[i + 4] = packed[i] >> 4 & 0x0f0f0f0fu;
    }
}

template <int ALIGN> __device__ inline void add_fifth_bits(const uint8_t *qh, uint32_t *word) {
    uint32_t bits;
    read_words<ALIGN, 1>(qh, &bits);
    for (int i = 0; i < 8; i++) word[i] |= fifth_bits(bits >> (4 * i));
}

// 128 bytes of nibbles: 32 bytes hold an even sub-block low and the next one high.
__device__ inline void paired_nibbles(const uint8_t *qs, int j, uint32_t *word) {
    read_words<16, 8>(qs + 32 * (j >> 1), word);
    for (int i = 0; i < 8; i++) word[i] = word[i] >> (4 * (j & 1)) & 0x0f0f0f0fu;
}

__device__ inline void unpack(blocks::Q4_0, const uint8_t *block, int, uint32_t *word) {
    split_nibbles<2>(block + 2, word);
    for (int i = 0; i < 8; i++) word[i] = less(word[i], 8);
}

__device__ inline void unpack(blocks::Q4_1, const uint8_t *block, int, uint32_t *word) {
    split_nibbles<4>(block + 4, word);
}

__device__ inline void unpack(blocks::Q5_0, const uint8_t *block, int, uint32_t *word) {
    split_nibbles<2>(block + 6, word);
    add_fifth_bits<2>(block + 2, word);
    for (int i = 0; i < 8; i++) word[i] = less(word[i], 16);
}

__device__ inline void unpack(blocks::Q5_1, const uint8_t *block, int, uint32_t *word) {
    split_nibbles<4>(block + 8, word);
    add_fifth_bits<4>(block + 4, word);
}

__device__ inline void unpack(blocks::Q8_0, const uint8_t *block, int, uint32_t *word) {
    read_words<2, 8>(block + 2, word);
}

__device__ inline void unpack(blocks::Q4_K, const uint8_t *block, int j, uint32_t *word) {
    paired_nibbles(block + 16, j, word);
}

__device__ inline void unpack(blocks::Q5_K, const uint8_t *block, int j, uint32_t *word) {
    uint32_t high[8];
    paired_nibbles(block + 48, j, word);
    read_words<16, 8>(block + 16, high);
    for (int i = 0; i < 8; i++) word[i] |= (high[i] >> j & 0x01010101u) << 4;
}

// Without the scales of 16 columns, which would not fit: `centred`.
__device__ inline void unpack(blocks::Q6_K, const uint8_t *block, int j, uint32_t *word) {
    int half = j >> 2, quarter = j & 3;
    uint32_t high[8];
    read_words<2, 8>(block + 64 * half + 32 * (quarter & 1), word);
    read_words<2, 8>(block + 128 + 32 * half, high);
    for (int i = 0; i < 8; i++) {
        uint32_t low = word[i] >> (4 * (quarter >> 1)) & 0x0f0f0f0fu;
        word[i] = less(low | (high[i] >> (2 * quarter) & 0x03030303u) << 4, 32);
    }
}

// One sub-block of a weight row, ready to meet many activations.
template <class Type> struct SubBlock {
    uint32_t word[8];
    float scale, minimum;

    __device__ inline SubBlock(const uint8_t *block, int j) : scale(Type::scale(block, j)), minimum(0.0f) {
        unpack(Type{}, block, j, word);
        if constexpr (Type::HAS_MINIMUM) minimum = Type::minimum(block, j);
    }

    // Weight scale times integer dot with 32 codes, plus the minimum's share.
    __device__ inline float part(const uint32_t *code) const {
        int dot = 0, sum = 0;
        for (int i = 0; i < 8; i++) dot = __dp4a((int)word[i], (int)code[i], dot);
        if constexpr (Type::HAS_MINIMUM)
            for (int i = 0; i < 8; i++) sum = __dp4a((int)code[i], 0x01010101, sum);
        float scaled = scale * (float)dot;
        return Type::HAS_MINIMUM ? exact::fused(minimum, (float)sum, scaled) : scaled;
    }
};

template <> struct SubBlock<blocks::Q6_K> {
    uint32_t word[8];
    float scale;
    int scale16[2]; // of the first and the last 16 columns

    __device__ inline SubBlock(const uint8_t *block, int j) : scale(blocks::Q6_K::scale(block, j)) {
        unpack(blocks::Q6_K{}, block, j, word);
        for (int h = 0; h < 2; h++) scale16[h] = blocks::Q6_K::scale16(block, j, 16 * h);
    }

    __device__ inline float part(const uint32_t *code) const {
        int dot[2] = {0, 0};
        for (int i = 0; i < 8; i++) dot[i / 4] = __dp4a((int)word[i], (int)code[i], dot[i / 4]);
        return scale * (float)(scale16[0] * dot[0] + scale16[1] * dot[1]);
    }
};

} // namespace
