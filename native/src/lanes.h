// The widest vector of fp32 that an instruction set has, and the few operations on it. Included by isa_*.cpp alone.
#pragma once

#include "exact.h"

#if defined(__AVX2__)
#include <immintrin.h>
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
#elif defined(__AVX2__)
using Lanes = __m256;
inline Lanes load(const float *x) { return _mm256_loadu_ps(x); }
inline void store(float *x, Lanes v) { _mm256_storeu_ps(x, v); }
inline Lanes all(float x) { return _mm256_set1_ps(x); }
inline Lanes plus(Lanes a, Lanes b) { return _mm256_add_ps(a, b); }
inline Lanes times(Lanes a, Lanes b) { return _mm256_mul_ps(a, b); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
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
