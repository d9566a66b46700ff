// The fp32 operations whose order is the contract: docs/arithmetic.md states them, this header is their one text for
// C++ and CUDA. Only IEEE operations (+ - * / sqrt fma) in a fixed order, so every compiler and processor gives the
// same bits.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define EM_FN __host__ __device__ static inline
#define EM_MATH(function) function
#else
#define EM_FN static inline
#define EM_MATH(function) __builtin_##function
#endif

namespace exact {

constexpr int SUB = 32;      // columns that share one activation scale
constexpr int BLOCK = 256;   // columns summed apart before they join a row's sum
constexpr int LANES = 16;    // partial sums of an unquantised dot
constexpr int KV_BLOCK = 64; // positions that attention sums apart before it merges them

EM_FN uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

EM_FN uint64_t bits_of_double(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

EM_FN float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

EM_FN float root(float x) { return EM_MATH(sqrtf)(x); }

EM_FN float fused(float a, float b, float c) { return EM_MATH(fmaf)(a, b, c); }

// Round to nearest even for |x| < 2^22, by addition alone.
EM_FN float round_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

EM_FN float from_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

// IEEE binary16 to binary32, exact, subnormals included.
EM_FN float from_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 31) return float_of(sign | 0x7f800000u | (mantissa ? 0x400000u : 0u) | (mantissa << 13));
    if (exponent != 0) return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    float tiny = (float)mantissa * 5.9604644775390625e-8f; // 2^-24, exact
    return float_of(sign | bits_of(tiny));
}

// IEEE binary32 to binary16, round to nearest even.
EM_FN uint16_t to_half(float x) {
    uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { // subnormal or zero: let an fp32 addition do the rounding
        float shifted = float_of(a) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - 0x3f000000u));
    }
    uint32_t odd = (a >> 13) & 1u;
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + odd) >> 13));
}

// exp by Cody and Waite reduction and the Cephes expf polynomial; 0 below -87.33, saturates above 88.
EM_FN float exponential(float x) {
    float c = x > 88.0f ? 88.0f : x;
    c = c < -87.33f ? -87.33f : c;
    float n = round_even(c * 1.44269504088896341f);
    float r = fused(n, -0.693359375f, c);
    r = fused(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fused(p, r, 1.3981999507e-3f);
    p = fused(p, r, 8.3334519073e-3f);
    p = fused(p, r, 4.1665795894e-2f);
    p = fused(p, r, 1.6666665459e-1f);
    p = fused(p, r, 5.0000001201e-1f);
    float y = fused(p, r * r, r) + 1.0f;
    int32_t exponent = (int32_t)n + 127;
    float scaled = y * float_of((uint32_t)exponent << 23);
    return x < -87.33f ? 0.0f : scaled;
}

EM_FN float silu(float g) { return g / (1.0f + exponential(-g)); }

// sin and cos of a double angle (0 <= angle < 2^20), reduced by pi/2 in two parts, fdlibm's kernel polynomials; times
// `magnitude`, then rounded once.
EM_FN void sine_cosine(double angle, double magnitude, float *sine, float *cosine) {
    const double magic = 6755399441055744.0; // 1.5 * 2^52
    double n = (angle * 0.63661977236758138 + magic) - magic;
    double r = (angle - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
    double z = r * r;
    double s = 1.58969099521155010221e-10;
    s = s * z + -2.50507602534068634195e-08;
    s = s * z + 2.75573137070700676789e-06;
    s = s * z + -1.98412698298579493134e-04;
    s = s * z + 8.33333333332248946124e-03;
    s = s * z + -1.66666666666666324348e-01;
    s = r + (r * z) * s;
    double c = -1.13596475577881948265e-11;
    c = c * z + 2.08757232129817482790e-09;
    c = c * z + -2.75573143513906633035e-07;
    c = c * z + 2.48015872894767294178e-05;
    c = c * z + -1.38888888888741095749e-03;
    c = c * z + 4.16666666666666019037e-02;
    c = (1.0 - 0.5 * z) + (z * z) * c;
    int quadrant = (int)((int64_t)n & 3);
    double a = (quadrant & 1) ? c : s, b = (quadrant & 1) ? s : c;
    *sine = (float)(((quadrant & 2) ? -a : a) * magnitude);
    *cosine = (float)(((quadrant == 1 || quadrant == 2) ? -b : b) * magnitude);
}

// The scale of 32 activations from the largest magnitude's bit pattern; the caller has refused NaN and infinity.
EM_FN float activation_scale(uint32_t amax_bits) { return float_of(amax_bits) / 127.0f; }

EM_FN int8_t activation_code(float x, float scale) {
    float q = round_even(x / scale);
    q = q > 127.0f ? 127.0f : q;
    q = q < -127.0f ? -127.0f : q;
    return (int8_t)q;
}

// One entry on the 2^-36 grid of the combine; |v| < 2^22 has been checked.
EM_FN int64_t to_fixed(float v) { return (int64_t)EM_MATH(llrint)((double)v * 68719476736.0); }
EM_FN float from_fixed(int64_t s) { return (float)s * 1.4551915228366852e-11f; }
EM_FN bool in_entry_range(float v) { return EM_MATH(fabsf)(v) < 4194304.0f; }

} // namespace exact
