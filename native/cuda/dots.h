// Dots of one weight row with up to N activation rows, made by one team of lanes in the order of docs/arithmetic.md.
// Lane a of the team gets the dot with activation a.
#pragma once

#include "packed.h"
#include "team.h"

namespace {

// Activation rows in the forms that weights take; what is not there is null.
struct Acts {
    const int8_t *codes; // (rows, columns)
    const float *scales; // (rows, columns / 32)
    const float *values; // (rows, columns)
};

// A warp: lane s makes the part of sub-block s of 32; then lane 8 b + a joins the parts of block b and activation a.
template <class Type, int N>
__device__ inline float quantised_dots(const uint8_t *w, int columns, const Acts &acts, const int (&at)[N]) {
    static_assert(N <= 8);
    constexpr int per_block = Type::COLUMNS / exact::SUB, in_block = exact::BLOCK / exact::SUB;
    __shared__ float parts[WARPS][N][WARP + 1], scales[WARPS][N][WARP + 1]; // + 1: columns lie in different banks
    const int lane = lane_of(), warp = warp_of(), subs = columns / exact::SUB;
    const int a = lane % in_block, block = lane / in_block;
    float row = 0.0f;
    for (int first = 0; first < subs; first += WARP) {
        const int s = first + lane;
        if (s < subs) {
            const SubBlock<Type> sub(w + (size_t)(s / per_block) * Type::BYTES, s % per_block);
#pragma unroll
            for (int i = 0; i < N; i++) {
                uint32_t code[8];
                read_words<16, 8>((const uint8_t *)acts.codes + (size_t)at[i] * columns + exact::SUB * s, code);
                parts[warp][i][lane] = sub.part(code);
                scales[warp][i][lane] = acts.scales[(size_t)at[i] * subs + s];
            }
        }
        __syncwarp();
        float sum = 0.0f;
        if (a < N)
            for (int j = in_block * block; j < in_block * (block + 1) && first + j < subs; j++)
                sum = exact::fused(scales[warp][a][j], parts[warp][a][j], sum);
        for (int b = 0; b < WARP / in_block; b++) {
            float of_block = __shfl_sync(EVERY_LANE, sum, in_block * b + a);
            if (first + in_block * b < subs) row = row + of_block;
        }
        __syncwarp();
    }
    return row;
}

// Half a warp: lane l takes the columns l, l + 16, ...; the lanes join in a tree.
template <class Type, int N>
__device__ inline float float_dots(const uint8_t *w, int columns, const Acts &acts, const int (&at)[N]) {
    const int lane = lane_of() % exact::LANES;
    constexpr int AHEAD = N == 1 ? 8 : 4; // loads on their way at the same time
    float sum[N] = {}, mine = 0.0f;
#pragma unroll AHEAD
    for (int i = lane; i < columns; i += exact::LANES) {
        float weight = Type::weight(w, i);
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = exact::fused(weight, acts.values[(size_t)at[k] * columns + i], sum[k]);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        float whole = __shfl_sync(EVERY_LANE, fold_lanes(sum[k], EVERY_LANE, plus), 0, exact::LANES);
        if (lane == k) mine = whole;
    }
    return mine;
}

// Which weight row a thread works on, in which lane of its team.
template <class Type> struct Team {
    static constexpr bool QUANTISED = Type::COLUMNS > 1;
    static constexpr int LANES = QUANTISED ? WARP : exact::LANES;
    static constexpr int ROWS = THREADS / LANES; // of a block

    __device__ static int row() { return (int)blockIdx.x * ROWS + (int)threadIdx.x / LANES; }
    __device__ static int lane() { return (int)threadIdx.x % LANES; }

    template <int N> __device__ static float dots(const uint8_t *w, int columns, const Acts &acts, const int (&at)[N]) {
        if constexpr (QUANTISED)
            return quantised_dots<Type, N>(w, columns, acts, at);
        else
            return float_dots<Type, N>(w, columns, acts, at);
    }
};

// Bytes of one row of weights.
template <class Type> __device__ inline size_t row_bytes(int columns) {
    return (size_t)(columns / Type::COLUMNS) * Type::BYTES;
}

} // namespace

// DO(name, type) for every type of weights.
#define EM_EVERY_TYPE(DO)                                                                                              \
    DO(f32, blocks::F32)                                                                                               \
    DO(f16, blocks::F16)                                                                                               \
    DO(bf16, blocks::BF16)                                                                                             \
    DO(q4_0, blocks::Q4_0)                                                                                             \
    DO(q4_1, blocks::Q4_1)                                                                                             \
    DO(q5_0, blocks::Q5_0)                                                                                             \
    DO(q5_1, blocks::Q5_1)                                                                                             \
    DO(q8_0, blocks::Q8_0)                                                                                             \
    DO(q4_k, blocks::Q4_K)                                                                                             \
    DO(q5_k, blocks::Q5_K)                                                                                             \
    DO(q6_k, blocks::Q6_K)
