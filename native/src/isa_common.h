// Elementwise kernels, one text for every instruction set: the compiler vectorises them, which cannot change a bit
// because no operation is reordered within an element. Included once by each isa_*.cpp; no standard containers here,
// so that no function compiled for a newer processor can be picked by the linker for an older one.
#pragma once

#include "blocks.h"
#include "kernels.h"

// In place or not, no element depends on another: without this word the loops stay scalar where input and output are
// one.
#define EM_EACH(i, n) _Pragma("GCC ivdep") for (int i = 0; i < n; i++)

#define EM_UNROLL _Pragma("GCC unroll 8")
#define EM_ROLLED _Pragma("GCC unroll 1")
#define EM_INLINE static inline __attribute__((always_inline))

namespace {

bool quantise_row(const float *x, int n, int8_t *codes, float *scales, int16_t *sums16) {
    for (int b = 0; b < n / exact::SUB; b++) {
        const float *v = x + b * exact::SUB;
        int8_t *q = codes + b * exact::SUB;
        uint32_t amax = 0;
        for (int i = 0; i < exact::SUB; i++) {
            uint32_t u = exact::bits_of(v[i]) & 0x7fffffffu;
            amax = u > amax ? u : amax;
        }
        if (amax >= 0x7f800000u) return false;
        float scale = exact::activation_scale(amax);
        scales[b] = scale;
        if (scale == 0.0f) {
            memset(q, 0, exact::SUB);
        } else {
            for (int i = 0; i < exact::SUB; i++) q[i] = exact::activation_code(v[i], scale);
        }
        for (int h = 0; h < 2; h++) {
            int sum = 0;
            for (int i = 0; i < 16; i++) sum += q[16 * h + i];
            sums16[2 * b + h] = (int16_t)sum;
        }
    }
    return true;
}

void exponential_all(const float *x, float *y, int n) { EM_EACH(i, n) y[i] = exact::exponential(x[i]); }

void silu_all(const float *x, float *y, int n) { EM_EACH(i, n) y[i] = exact::silu(x[i]); }

void silu_times_all(const float *gate, const float *up, float *out, int n) {
    EM_EACH(i, n) out[i] = exact::silu(gate[i]) * up[i];
}

void add_all(float *x, const float *y, int n) { EM_EACH(i, n) x[i] = x[i] + y[i]; }

void norm_scale_all(const float *x, const float *w, float scale, float *y, int n) {
    EM_EACH(i, n) y[i] = (x[i] * scale) * w[i];
}

bool weigh_all(const float *x, float weight, float *y, int n) {
    int bad = 0;
    EM_EACH(i, n) {
        y[i] = weight * x[i];
        bad |= !exact::in_entry_range(y[i]);
    }
    return !bad;
}

// exact::to_fixed in operations that vectors have: a multiple of 2^26 and what is left round to integers apart, by
// addition. The multiple is even, so ties of the rest are ties of the whole.
void add_fixed_all(const float *x, int64_t *sums, int n) {
    const double grid = 68719476736.0, whole = 6755399441055744.0; // 2^36, 1.5 * 2^52
    const double many = whole * 67108864.0;                        // the same for multiples of 2^26
    const uint64_t zero = exact::bits_of_double(whole);
    EM_EACH(i, n) {
        double scaled = (double)x[i] * grid;
        double high = (scaled + many) - many;
        double rest = (scaled - high) + whole, multiple = high * (1.0 / 67108864.0) + whole;
        uint64_t fixed = ((exact::bits_of_double(multiple) - zero) << 26) + (exact::bits_of_double(rest) - zero);
        sums[i] = (int64_t)((uint64_t)sums[i] + fixed); // wraps: a total beyond int64 cannot come from entries in range
    }
}

void rotate_all(float *x, const float *cos, const float *sin, int half) {
    EM_EACH(i, half) {
        float a = x[i], b = x[i + half];
        x[i] = exact::fused(a, cos[i], -(b * sin[i]));
        x[i + half] = exact::fused(a, sin[i], b * cos[i]);
    }
}

} // namespace
