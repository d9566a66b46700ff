// The widest vector of fp32 that an instruction set has, and the few operations on it. Included by isa_*.cpp alone.
#pragma once

#include "exact.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
using Lanes = __m512;
inline Lanes load(const float *x) { return _mm512_loadu_ps(x); }
inline void store(float *x, Lanes v) { _mm512_storeu_ps(x, v); }
inline Lanes all(float x) { return _mm512_set1_ps(x); }
inline Lanes plus(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes times(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes bf16s_at(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
#elif defined(__AVX2__)
using Lanes = __m256;
inline Lanes load(const float *x) { return _mm256_loadu_ps(x); }
inline void store(float *x, Lanes v) { _mm256_storeu_ps(x, v); }
inline Lanes all(float x) { return _mm256_set1_ps(x); }
inline Lanes plus(Lanes a, Lanes b) { return _mm256_add_ps(a, b); }
inline Lanes times(Lanes a, Lanes b) { return _mm256_mul_ps(a, b); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
inline Lanes bf16s_at(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
#elif defined(__ARM_FEATURE_DOTPROD)
using Lanes = float32x4_t;
inline Lanes load(const float *x) { return vld1q_f32(x); }
inline void store(float *x, Lanes v) { vst1q_f32(x, v); }
inline Lanes all(float x) { return vdupq_n_f32(x); }
inline Lanes plus(Lanes a, Lanes b) { return vaddq_f32(a, b); }
inline Lanes times(Lanes a, Lanes b) { return vmulq_f32(a, b); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return vfmaq_f32(c, a, b); }
inline Lanes bf16s_at(const uint8_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)p), 16));
}
#else
typedef float Lanes __attribute__((vector_size(16)));
inline Lanes load(const float *x) {
    Lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}
inline void store(float *x, Lanes v) { memcpy(x, &v, sizeof v); }
inline Lanes all(float x) { return Lanes{x, x, x, x}; }
inline Lanes plus(Lanes a, Lanes b) { return a + b; }
inline Lanes times(Lanes a, Lanes b) { return a * b; }
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
    Lanes v;
    for (int i = 0; i < 4; i++) v[i] = exact::fused(a[i], b[i], c[i]);
    return v;
}
#endif

constexpr int WIDE = sizeof(Lanes) / sizeof(float);

} // namespace
