// What one instruction set offers: a table of functions, all bit-identical between tables (tests compare them).
#pragma once

#include <cstddef>
#include <cstdint>

// One activation row in the forms that kernels read. Codes, scales and sums are null until quantised.
struct Act {
    const int8_t *codes = nullptr;   // (columns)
    const float *scales = nullptr;   // (columns / 32)
    const int16_t *sums16 = nullptr; // (columns / 16): sums of codes
    const float *sums = nullptr;     // (columns / 32): the same of sub-blocks
    const float *values = nullptr;   // (columns), or null when the row arrived quantised
};

// A query head on its way through the blocks of positions: what it asks, and its softmax over the blocks seen so far.
struct Head {
    const float *query; // (dim)
    float *sum;         // (dim)
    float largest, total;
};

// One block of positions as attention reads it; vector loads may read up to 256 bytes past the end of `values`.
struct KvBlock {
    const float *keys;   // (dim, 64)
    const float *values; // (64, dim)
    int dim, count;      // positions from `count` on are not attended to
    float scale;         // of scores
    bool first;          // nothing came before it
};

constexpr int TILE_ROWS = 8;                      // weight rows of one tile call
constexpr int TILE_ACTS = 4;                      // activation rows of one tile call
constexpr int PACKED_ROWS = 16, PACKED_ACTS = 32; // the same for packed weights

// out[a * TILE_ROWS + r] = dot of weight row r (at w + r * stride) with activation a; rows <= 8, acts <= 4.
using TileFn = void (*)(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts,
                        float *out);

// Activation rows as packed tiles read them: sub-block by sub-block, and of each the rows. One row is such a tile as it
// is; sub-block s of row a is the one numbered s * n + a.
struct ActTile {
    int n;                 // PACKED_ACTS at most
    const int8_t *codes;   // (columns / 32, n, 32)
    const float *scales;   // (columns / 32, n)
    const int16_t *sums16; // (columns / 32, n, 2)
    const float *sums;     // (columns / 32, n)
};

// out[a * stride + r] = dot of row r of a group (packed_layout.h) with activation a.
using PackedTileFn = void (*)(const uint8_t *group, int columns, const ActTile &acts, float *out, size_t stride);

// For each quantised type.
template <class Fn> struct OfTypes {
    Fn q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k;
};

struct Kernels {
    const char *name;
    TileFn f32, f16, bf16;
    OfTypes<TileFn> rows;
    OfTypes<PackedTileFn> packed;
    // Codes (n), scales (n / 32), sums16 (n / 16) of n values; false if any is NaN or infinite.
    bool (*quantise)(const float *x, int n, int8_t *codes, float *scales, int16_t *sums16);
    void (*half_to_float)(const uint16_t *x, float *y, int n);
    void (*float_to_half)(const float *x, uint16_t *y, int n);
    void (*exponential)(const float *x, float *y, int n);
    void (*silu)(const float *x, float *y, int n);
    void (*silu_times)(const float *gate, const float *up, float *out, int n); // out = silu(gate) * up
    void (*add)(float *x, const float *y, int n);
    void (*norm_scale)(const float *x, const float *w, float scale, float *y, int n); // y = (x * scale) * w
    bool (*weigh)(const float *x, float weight, float *y, int n); // y = weight * x; false if any is out of range
    void (*add_fixed)(const float *x, int64_t *sums, int n);      // sums += x on the fixed-point grid; all in range
    void (*rotate)(float *x, const float *cos, const float *sin, int half);
    void (*attend_block)(const KvBlock &block, Head *heads, int n);
};

const Kernels &kernels(); // the table in use

extern const Kernels SCALAR_KERNELS;
#ifdef EXPERTMESH_X86
extern const Kernels AVX2_KERNELS;
extern const Kernels AVX512_KERNELS;
#endif
#ifdef EXPERTMESH_NEON
extern const Kernels NEON_KERNELS;
#endif
