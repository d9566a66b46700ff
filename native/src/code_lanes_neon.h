// Four lanes of 64-bit Arm with dot products: four signed bytes of each lane by four others in one instruction. Codes
// below 64 are signed bytes as they are; 32 products of -128 * -127 are 2^19, so int32 never overflows.
#pragma once

namespace {

using Codes = int32x4_t;
inline Codes load_codes(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
inline Codes all_dwords(int32_t v) { return vdupq_n_s32(v); }
inline Codes both(Codes a, Codes b) { return vandq_s32(a, b); }
inline Codes either(Codes a, Codes b) { return vorrq_s32(a, b); }
template <int N> inline Codes left(Codes v) { return vshlq_n_s32(v, N); }
template <int N> inline Codes right(Codes v) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), N)); }
inline Codes plus32(Codes a, Codes b) { return vaddq_s32(a, b); }
inline Codes less32(Codes a, Codes b) { return vsubq_s32(a, b); }
inline Lanes to_floats(Codes v) { return vcvtq_f32_s32(v); }
inline Lanes halves_at(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
inline Codes int8_pairs(const uint8_t *p) { return vreinterpretq_s32_s16(vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)))); }
inline Codes dot_pairs(Codes a, Codes b) {
    int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}

// Dword q of x goes to every lane of the q-th code.
inline Codes dots_of_four(const Codes code[4], const int8_t *x) {
    const int8x16_t four = vld1q_s8(x);
    Codes sum = vdupq_n_s32(0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(code[0]), four, 0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(code[1]), four, 1);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(code[2]), four, 2);
    return vdotq_laneq_s32(sum, vreinterpretq_s8_s32(code[3]), four, 3);
}
inline Codes half_below32(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes half_below16(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes whole_below16(Codes first, Codes second) { return plus32(first, second); }
inline Codes half_scaled(const Codes code[4], const int8_t *x, Codes pairs, bool second) {
    return vmulq_s32(dots_of_four(code, x), vshrq_n_s32(second ? pairs : left<16>(pairs), 16));
}
inline Codes half_signed(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes whole_signed(Codes first, Codes second, int32_t) { return plus32(first, second); }

} // namespace
