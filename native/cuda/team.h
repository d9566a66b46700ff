// How threads of a CUDA block work together: a team of lanes makes one row's dot products.
#pragma once

#include "exact.h"

namespace {

constexpr int WARP = 32;
constexpr int THREADS = 256; // of a block that computes dots
constexpr int WARPS = THREADS / WARP;
constexpr unsigned EVERY_LANE = 0xffffffffu;
#define MINUS_INFINITY exact::float_of(0xff800000u)

__device__ inline int lane_of() { return (int)threadIdx.x % WARP; }
__device__ inline int warp_of() { return (int)threadIdx.x / WARP; }

// The tree over 16 lanes: lane 0 gets what `join` makes of all of them. All lanes of `mask` take part.
template <class Join> __device__ inline float fold_lanes(float x, unsigned mask, Join join) {
    for (int width = exact::LANES / 2; width > 0; width /= 2)
        x = join(x, __shfl_down_sync(mask, x, width, exact::LANES));
    return x;
}

__device__ inline float plus(float a, float b) { return a + b; }

} // namespace
