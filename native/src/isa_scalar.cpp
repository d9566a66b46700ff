// The plain path: the reading of docs/arithmetic.md that every processor can run.
#include "attend_block.h"
#include "isa_common.h"

namespace {

void half_to_float(const uint16_t *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = exact::from_half(x[i]);
}

void float_to_half(const float *x, uint16_t *y, int n) {
    for (int i = 0; i < n; i++) y[i] = exact::to_half(x[i]);
}

// Lane i % 16 takes column i; lanes join in a tree.
template <class Load> float lane_dot(Load weight, const float *x, int columns) {
    float lane[exact::LANES] = {};
    for (int i = 0; i < columns; i++) lane[i % exact::LANES] = exact::fused(weight(i), x[i], lane[i % exact::LANES]);
    for (int width = exact::LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

struct F32 {
    static float dot(const uint8_t *w, const Act &act, int columns) {
        auto load = [w](int i) {
            float v;
            memcpy(&v, w + 4 * (size_t)i, 4);
            return v;
        };
        return lane_dot(load, act.values, columns);
    }
};

struct F16 {
    static float dot(const uint8_t *w, const Act &act, int columns) {
        return lane_dot([w](int i) { return exact::from_half(blocks::u16_at(w + 2 * (size_t)i)); }, act.values,
                        columns);
    }
};

struct BF16 {
    static float dot(const uint8_t *w, const Act &act, int columns) {
        return lane_dot([w](int i) { return exact::from_bf16(blocks::u16_at(w + 2 * (size_t)i)); }, act.values,
                        columns);
    }
};

// Sub-blocks of 32 columns: `Type::sub` gives weight scale times integer dot, the activation scale joins by fma.
template <class Type> struct Quantised {
    static float dot(const uint8_t *w, const Act &act, int columns) {
        float row = 0.0f;
        for (int start = 0; start < columns; start += exact::BLOCK) {
            int subs = (columns - start < exact::BLOCK ? columns - start : exact::BLOCK) / exact::SUB;
            const uint8_t *block = w + (size_t)(start / exact::BLOCK) * Type::bytes_per_256;
            float sum = 0.0f;
            for (int j = 0; j < subs; j++) {
                int s = start / exact::SUB + j;
                sum = exact::fused(act.scales[s], Type::sub(block, j, act.codes + exact::SUB * s, act.sums16 + 2 * s),
                                   sum);
            }
            row = row + sum;
        }
        return row;
    }
};

struct Q8_0 {
    static constexpr size_t bytes_per_256 = 8 * blocks::Q8_0_BYTES;
    static float sub(const uint8_t *block, int j, const int8_t *x, const int16_t *) {
        const uint8_t *b = block + j * blocks::Q8_0_BYTES;
        int32_t dot = 0;
        for (int i = 0; i < exact::SUB; i++) dot += (int8_t)b[2 + i] * x[i];
        return exact::from_half(blocks::u16_at(b)) * (float)dot;
    }
};

struct Q4_K {
    static constexpr size_t bytes_per_256 = blocks::Q4_K_BYTES;
    static float sub(const uint8_t *block, int j, const int8_t *x, const int16_t *sums16) {
        uint8_t scale[8], minimum[8];
        blocks::unpack_scales6(block + 4, scale, minimum);
        int32_t dot = 0;
        for (int i = 0; i < exact::SUB; i++) dot += blocks::q4_k_code(block + 16, 32 * j + i) * x[i];
        float d = exact::from_half(blocks::u16_at(block)) * (float)scale[j];
        float m = exact::from_half(blocks::u16_at(block + 2)) * (float)minimum[j];
        return exact::fused(-m, (float)(sums16[0] + sums16[1]), d * (float)dot);
    }
};

struct Q6_K {
    static constexpr size_t bytes_per_256 = blocks::Q6_K_BYTES;
    static float sub(const uint8_t *block, int j, const int8_t *x, const int16_t *) {
        const int8_t *scale = (const int8_t *)block + 192 + 2 * j;
        int32_t dot = 0; // below 2^24: exact as a float too
        for (int i = 0; i < exact::SUB; i++)
            dot += scale[i / 16] * ((blocks::q6_k_code(block, 32 * j + i) - 32) * x[i]);
        return exact::from_half(blocks::u16_at(block + 208)) * (float)dot;
    }
};

template <class Type>
void tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    for (int a = 0; a < n_acts; a++)
        for (int r = 0; r < rows; r++) out[a * TILE_ROWS + r] = Type::dot(w + r * stride, acts[a], columns);
}

} // namespace

const Kernels SCALAR_KERNELS = {
    "scalar",
    tile<F32>,
    tile<F16>,
    tile<BF16>,
    tile<Quantised<Q8_0>>,
    tile<Quantised<Q4_K>>,
    tile<Quantised<Q6_K>>,
    quantise_row,
    half_to_float,
    float_to_half,
    exponential_all,
    silu_all,
    silu_times_all,
    add_all,
    norm_scale_all,
    rotate_all,
    attend_block,
};
