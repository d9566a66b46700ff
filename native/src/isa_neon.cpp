// Compiled for 64-bit Arm with dot products of bytes (armv8.2-a+dotprod).
#include "attend_block.h"
#include "float_tiles.h"
#include "isa_common.h"
#include "packed_tiles.h"
#include "row_tiles.h"

namespace {

void half_to_float(const uint16_t *x, float *y, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4) store(y + i, halves_at((const uint8_t *)(x + i)));
    for (; i < n; i++) y[i] = exact::from_half(x[i]);
}

void float_to_half(const float *x, uint16_t *y, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4) vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(load(x + i))));
    for (; i < n; i++) y[i] = exact::to_half(x[i]);
}

// The 32 integers of a sub-block of a row, as bytes: columns 0..15 and 16..31.
struct Bytes {
    int8x16_t low, high;
};

inline Bytes less(uint8x16_t low, uint8x16_t high, int8_t middle) {
    return {vsubq_s8(vreinterpretq_s8_u8(low), vdupq_n_s8(middle)),
            vsubq_s8(vreinterpretq_s8_u8(high), vdupq_n_s8(middle))};
}

// 16 in byte i if bit i of two bytes is set.
inline uint8x16_t fifth_bits(const uint8_t *two) {
    const uint8x8_t bit = vcreate_u8(0x8040201008040201u);
    uint8x16_t spread = vcombine_u8(vdup_n_u8(two[0]), vdup_n_u8(two[1]));
    return vandq_u8(vtstq_u8(spread, vcombine_u8(bit, bit)), vdupq_n_u8(16));
}

// `bits` bits of each byte, from bit `from` on, moved to bit `to`.
inline uint8x16_t bits_at(const uint8_t *p, int from, int bits, int to = 0) {
    uint8x16_t field =
        vandq_u8(vshlq_u8(vld1q_u8(p), vdupq_n_s8((int8_t)-from)), vdupq_n_u8((uint8_t)((1 << bits) - 1)));
    return vshlq_u8(field, vdupq_n_s8((int8_t)to));
}

inline Bytes integers(blocks::Q4_0, const uint8_t *block, int) {
    return less(bits_at(block + 2, 0, 4), bits_at(block + 2, 4, 4), 8);
}
inline Bytes integers(blocks::Q4_1, const uint8_t *block, int) {
    return less(bits_at(block + 4, 0, 4), bits_at(block + 4, 4, 4), 0);
}
inline Bytes integers(blocks::Q5_0, const uint8_t *block, int) {
    return less(vorrq_u8(bits_at(block + 6, 0, 4), fifth_bits(block + 2)),
                vorrq_u8(bits_at(block + 6, 4, 4), fifth_bits(block + 4)), 16);
}
inline Bytes integers(blocks::Q5_1, const uint8_t *block, int) {
    return less(vorrq_u8(bits_at(block + 8, 0, 4), fifth_bits(block + 4)),
                vorrq_u8(bits_at(block + 8, 4, 4), fifth_bits(block + 6)), 0);
}
inline Bytes integers(blocks::Q8_0, const uint8_t *block, int) {
    return {vreinterpretq_s8_u8(vld1q_u8(block + 2)), vreinterpretq_s8_u8(vld1q_u8(block + 18))};
}
inline Bytes integers(blocks::Q4_K, const uint8_t *block, int j) {
    const uint8_t *low = block + 16 + 32 * (j >> 1);
    return less(bits_at(low, 4 * (j & 1), 4), bits_at(low + 16, 4 * (j & 1), 4), 0);
}
inline Bytes integers(blocks::Q5_K, const uint8_t *block, int j) {
    const uint8_t *low = block + 48 + 32 * (j >> 1), *high = block + 16;
    return less(vorrq_u8(bits_at(low, 4 * (j & 1), 4), bits_at(high, j, 1, 4)),
                vorrq_u8(bits_at(low + 16, 4 * (j & 1), 4), bits_at(high + 16, j, 1, 4)), 0);
}
inline Bytes integers(blocks::Q6_K, const uint8_t *block, int j) { // without the scales of 16 columns
    int half = j >> 2, quarter = j & 3;
    const uint8_t *low = block + 64 * half + 32 * (quarter & 1), *high = block + 128 + 32 * half;
    return less(vorrq_u8(bits_at(low, 4 * (quarter >> 1), 4), bits_at(high, 2 * quarter, 2, 4)),
                vorrq_u8(bits_at(low + 16, 4 * (quarter >> 1), 4), bits_at(high + 16, 2 * quarter, 2, 4)), 32);
}

struct Dots {
    template <class Type> static int32_t of(Type type, const uint8_t *block, int j, const int8_t *x) {
        const Bytes q = integers(type, block, j);
        const int32x4_t none = vdupq_n_s32(0);
        int32x4_t low = vdotq_s32(none, q.low, vld1q_s8(x));
        if constexpr (requires { Type::scale16(block, j, 0); }) {
            int32x4_t high = vdotq_s32(none, q.high, vld1q_s8(x + 16));
            return Type::scale16(block, j, 0) * vaddvq_s32(low) + Type::scale16(block, j, 16) * vaddvq_s32(high);
        } else {
            return vaddvq_s32(vdotq_s32(low, q.high, vld1q_s8(x + 16)));
        }
    }
};

} // namespace

#include "kernel_table.h"

constinit const Kernels NEON_KERNELS = kernel_table("neon", row_tiles<Dots>());
