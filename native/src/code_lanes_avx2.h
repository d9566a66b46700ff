// Eight lanes: products of bytes are added in pairs of int16, and widened before they overflow.
#pragma once

namespace {

using Codes = __m256i;
inline Codes load_codes(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
inline Codes all_dwords(int32_t v) { return _mm256_set1_epi32(v); }
inline Codes both(Codes a, Codes b) { return _mm256_and_si256(a, b); }
inline Codes either(Codes a, Codes b) { return _mm256_or_si256(a, b); }
template <int N> inline Codes left(Codes v) { return _mm256_slli_epi32(v, N); }
template <int N> inline Codes right(Codes v) { return _mm256_srli_epi32(v, N); }
inline Codes plus32(Codes a, Codes b) { return _mm256_add_epi32(a, b); }
inline Codes less32(Codes a, Codes b) { return _mm256_sub_epi32(a, b); }
inline Lanes to_floats(Codes v) { return _mm256_cvtepi32_ps(v); }
inline Lanes halves_at(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
inline Codes int8_pairs(const uint8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }
inline Codes dot_pairs(Codes a, Codes b) { return _mm256_madd_epi16(a, b); }

// Two products of codes below 16, 32, 64 in each int16: 8, 4, 2 of these may be added.
inline Codes products(Codes code, const int8_t *x) { return _mm256_maddubs_epi16(code, all_dwords(dword_at(x))); }
inline Codes plus16(Codes a, Codes b) { return _mm256_add_epi16(a, b); }
inline Codes widened(Codes pairs) { return dot_pairs(pairs, _mm256_set1_epi16(1)); }

inline Codes products_of_four(const Codes code[4], const int8_t *x) {
    return plus16(plus16(products(code[0], x), products(code[1], x + 4)),
                  plus16(products(code[2], x + 8), products(code[3], x + 12)));
}
inline Codes half_below16(const Codes code[4], const int8_t *x) { return products_of_four(code, x); }
inline Codes whole_below16(Codes first, Codes second) { return widened(plus16(first, second)); }
inline Codes half_below32(const Codes code[4], const int8_t *x) { return widened(products_of_four(code, x)); }

inline Codes half_scaled(const Codes code[4], const int8_t *x, Codes pairs, bool second) {
    // The scale of this half twice in its lane, as int16.
    Codes scale = second ? either(right<16>(pairs), both(pairs, all_dwords((int32_t)0xffff0000)))
                         : either(both(pairs, all_dwords(0xffff)), left<16>(pairs));
    return plus32(dot_pairs(plus16(products(code[0], x), products(code[1], x + 4)), scale),
                  dot_pairs(plus16(products(code[2], x + 8), products(code[3], x + 12)), scale));
}

inline Codes half_signed(const Codes code[4], const int8_t *x) { // the codes' signs go to the activations
    Codes part[4];
    for (int q = 0; q < 4; q++)
        part[q] = widened(
            _mm256_maddubs_epi16(_mm256_abs_epi8(code[q]), _mm256_sign_epi8(all_dwords(dword_at(x + 4 * q)), code[q])));
    return plus32(plus32(part[0], part[1]), plus32(part[2], part[3]));
}
inline Codes whole_signed(Codes first, Codes second, int32_t) { return plus32(first, second); }

} // namespace
