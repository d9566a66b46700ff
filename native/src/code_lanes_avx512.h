// Sixteen lanes: byte dots in one instruction, unsigned codes by signed activations (-127..127), added to int32 without
// saturation: 32 products of at most 255 * 127 are below 2^20.
#pragma once

namespace {

using Codes = __m512i;
inline Codes load_codes(const uint8_t *p) { return _mm512_loadu_si512(p); }
inline Codes all_dwords(int32_t v) { return _mm512_set1_epi32(v); }
inline Codes both(Codes a, Codes b) { return _mm512_and_si512(a, b); }
inline Codes either(Codes a, Codes b) { return _mm512_or_si512(a, b); }
template <int N> inline Codes left(Codes v) { return _mm512_slli_epi32(v, N); }
template <int N> inline Codes right(Codes v) { return _mm512_srli_epi32(v, N); }
inline Codes plus32(Codes a, Codes b) { return _mm512_add_epi32(a, b); }
inline Codes less32(Codes a, Codes b) { return _mm512_sub_epi32(a, b); }
inline Lanes to_floats(Codes v) { return _mm512_cvtepi32_ps(v); }
inline Lanes halves_at(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
inline Codes int8_pairs(const uint8_t *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)); }
inline Codes dot_pairs(Codes a, Codes b) { return _mm512_madd_epi16(a, b); }

inline Codes dots_of_four(const Codes code[4], const int8_t *x) {
    Codes sum = all_dwords(0);
    for (int q = 0; q < 4; q++) sum = _mm512_dpbusd_epi32(sum, code[q], all_dwords(dword_at(x + 4 * q)));
    return sum;
}

inline Codes half_below32(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes half_below16(const Codes code[4], const int8_t *x) { return dots_of_four(code, x); }
inline Codes whole_below16(Codes first, Codes second) { return plus32(first, second); }

// Each sum is at most 2 * 16 * 63 * 127 * 128, below 2^25; 32 times the scaled sums of x are below 2^24.
inline Codes half_scaled(const Codes code[4], const int8_t *x, Codes pairs, bool second) {
    return _mm512_mullo_epi32(dots_of_four(code, x), _mm512_srai_epi32(second ? pairs : left<16>(pairs), 16));
}

inline Codes half_signed(const Codes code[4], const int8_t *x) { // 128 more each: `whole_signed` takes that off
    Codes more[4];
    for (int q = 0; q < 4; q++) more[q] = _mm512_xor_si512(code[q], _mm512_set1_epi8((char)0x80));
    return dots_of_four(more, x);
}
inline Codes whole_signed(Codes first, Codes second, int32_t sums) {
    return less32(plus32(first, second), dot_pairs(all_dwords(sums), all_dwords(int16_twice(128))));
}

} // namespace
