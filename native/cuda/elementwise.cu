// Norms, rotary positions, residuals and the end of the combine.
#include "team.h"

// A block for each row of n columns; x and out may be one. The sum of squares has the 16 lanes and the tree of a dot:
// half a warp makes it, of what all threads have read.
extern "C" __global__ void rms_norm(const float *x, const float *weight, float eps, int n, float *out) {
    constexpr int TILE = 2048;
    static_assert(TILE % exact::LANES == 0);
    __shared__ float tile[TILE], scale;
    const float *row = x + (size_t)blockIdx.x * n;
    float sum = 0.0f;
    for (int first = 0; first < n; first += TILE) {
        const int count = n - first < TILE ? n - first : TILE;
        for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = row[first + i];
        __syncthreads();
        if ((int)threadIdx.x < exact::LANES) {
#pragma unroll 8
            for (int i = threadIdx.x; i < count; i += exact::LANES) sum = exact::fused(tile[i], tile[i], sum);
        }
        __syncthreads();
    }
    if ((int)threadIdx.x < exact::LANES) {
        sum = fold_lanes(sum, (1u << exact::LANES) - 1, plus);
        if (threadIdx.x == 0) scale = 1.0f / exact::root(sum / (float)n + eps);
    }
    __syncthreads();
    float *to = out + (size_t)blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = (row[i] * scale) * weight[i];
}

// cos and sin times `magnitude`, (rows, half).
extern "C" __global__ void rope_table(const int *position, const double *frequency, double magnitude, int half,
                                      int values, float *cos, float *sin) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < values) exact::sine_cosine((double)position[i / half] * frequency[i % half], magnitude, &sin[i], &cos[i]);
}

// Rotates (rows, heads, 2 half) in place: column i with column i + half. `pairs` is rows * heads * half.
extern "C" __global__ void rope(float *x, const float *cos, const float *sin, int heads, int half, long long pairs) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) return;
    const long long head = i / half, column = i % half, angle = head / heads * half + column;
    float *at = x + head * 2 * half + column;
    const float a = at[0], b = at[half];
    at[0] = exact::fused(a, cos[angle], -(b * sin[angle]));
    at[half] = exact::fused(a, sin[angle], b * cos[angle]);
}

extern "C" __global__ void add(float *x, const float *y, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] + y[i];
}

// x += all entries of a layer: those summed on this device, and those summed elsewhere, if any. The device's sums are
// zero again afterwards.
extern "C" __global__ void combine(float *x, long long *here, const long long *elsewhere, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned long long other = elsewhere ? (unsigned long long)elsewhere[i] : 0;
    x[i] = x[i] + exact::from_fixed((int64_t)((unsigned long long)here[i] + other));
    here[i] = 0;
}
