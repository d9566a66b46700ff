// Activation rows: quantised, and multiplied with a matrix of weights.
#include "dots.h"

// A warp for each 32 columns: codes, scale. A row with NaN or infinity is noted: the lowest such row stays in `fault`.
extern "C" __global__ void quantise(const float *values, int columns, long long subs, int8_t *codes, float *scales,
                                    int *fault) {
    const long long s = (long long)blockIdx.x * WARPS + warp_of();
    if (s >= subs) return;
    const long long at = s * exact::SUB + lane_of();
    const float x = values[at];
    unsigned amax = exact::bits_of(x) & 0x7fffffffu;
    for (int other = WARP / 2; other > 0; other /= 2) {
        unsigned theirs = __shfl_xor_sync(EVERY_LANE, amax, other);
        amax = theirs > amax ? theirs : amax;
    }
    const bool finite = amax < 0x7f800000u;
    const float scale = finite ? exact::activation_scale(amax) : 0.0f;
    codes[at] = scale == 0.0f ? (int8_t)0 : exact::activation_code(x, scale);
    if (lane_of() != 0) return;
    scales[s] = scale;
    if (!finite) atomicMin(fault, (int)(s * exact::SUB / columns));
}

namespace {

template <class Type, int N>
__device__ void multiply(const uint8_t *weights, int rows, int columns, const Acts &acts, int count, float *out) {
    const int row = Team<Type>::row(), first = (int)blockIdx.y * N;
    int at[N]; // what is past the end is computed and not written: no lane may leave its team
    for (int i = 0; i < N; i++) at[i] = first + i < count ? first + i : count - 1;
    const uint8_t *w = weights + (size_t)(row < rows ? row : rows - 1) * row_bytes<Type>(columns);
    const float dot = Team<Type>::dots(w, columns, acts, at);
    const int a = Team<Type>::lane();
    if (row < rows && a < N && first + a < count) out[(size_t)(first + a) * rows + row] = dot;
}

} // namespace

// out (count, rows) = activations (count, columns) times weights (rows, columns), 1 or 8 activations at a time.
#define MATMUL(name, type)                                                                                             \
    extern "C" __global__ void matmul_##name##_1(const uint8_t *weights, int rows, int columns, const int8_t *codes,   \
                                                 const float *scales, const float *values, int count, float *out) {    \
        multiply<type, 1>(weights, rows, columns, {codes, scales, values}, count, out);                                \
    }                                                                                                                  \
    extern "C" __global__ void matmul_##name##_8(const uint8_t *weights, int rows, int columns, const int8_t *codes,   \
                                                 const float *scales, const float *values, int count, float *out) {    \
        multiply<type, 8>(weights, rows, columns, {codes, scales, values}, count, out);                                \
    }
EM_EVERY_TYPE(MATMUL)
