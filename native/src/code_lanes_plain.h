// Four lanes, for any processor.
#pragma once

namespace {

typedef int32_t Codes __attribute__((vector_size(16)));
typedef uint32_t Unsigned __attribute__((vector_size(16)));
inline Codes load_codes(const uint8_t *p) {
    Codes v;
    memcpy(&v, p, sizeof v);
    return v;
}
inline Codes all_dwords(int32_t v) { return Codes{v, v, v, v}; }
inline Codes both(Codes a, Codes b) { return a & b; }
inline Codes either(Codes a, Codes b) { return a | b; }
template <int N> inline Codes left(Codes v) { return (Codes)((Unsigned)v << N); }
template <int N> inline Codes right(Codes v) { return (Codes)((Unsigned)v >> N); }
inline Codes plus32(Codes a, Codes b) { return a + b; }
inline Codes less32(Codes a, Codes b) { return a - b; }
inline Lanes to_floats(Codes v) { return __builtin_convertvector(v, Lanes); }
inline Lanes halves_at(const uint8_t *p) {
    return Lanes{blocks::half_at(p), blocks::half_at(p + 2), blocks::half_at(p + 4), blocks::half_at(p + 6)};
}
inline Codes int8_pairs(const uint8_t *p) {
    Codes v;
    for (int i = 0; i < 4; i++)
        v[i] = (int32_t)((uint32_t)(uint16_t)(int8_t)p[2 * i] | (uint32_t)(int8_t)p[2 * i + 1] << 16);
    return v;
}

inline Codes low16(Codes pairs) { return left<16>(pairs) >> 16; }
inline Codes high16(Codes pairs) { return pairs >> 16; }
inline Codes dot_pairs(Codes a, Codes b) { return low16(a) * low16(b) + high16(a) * high16(b); }

inline Codes dots_of_four(const Codes code[4], const int8_t *x) {
    Codes sum = all_dwords(0);
    for (int q = 0; q < 4; q++)
        for (int b = 0; b < 4; b++) sum += ((Codes)((Unsigned)code[q] << (24 - 8 * b)) >> 24) * (int32_t)x[4 * q + b];
    return sum;
}
inline Codes half_below32(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes half_below16(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes whole_below16(Codes first, Codes second) { return plus32(first, second); }
inline Codes half_scaled(const Codes code[4], const int8_t *x, Codes pairs, bool second) {
    return dots_of_four(code, x) * (second ? high16(pairs) : low16(pairs));
}
inline Codes half_signed(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes whole_signed(Codes first, Codes second, int32_t) { return plus32(first, second); }

} // namespace
