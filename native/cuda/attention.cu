// Attention over the caches of several sequences. A cache is (2, layers, kv_heads, blocks) lines of one block of 64
// positions of one head each: keys as (dim, 64), values as (64, dim), fp16 or fp32.
#include "team.h"

namespace {

constexpr int BLOCK = exact::KV_BLOCK;
constexpr int MAX_DIM = 512; // of a head: its query lies in shared memory

// Where the rows of a window find their caches.
struct Caches {
    const unsigned long long *address; // (rows): of the cache of the row's sequence
    const int *blocks;                 // (rows): that the cache has room for
    int layer, layers, kv_heads, dim;
};

template <class Element>
__device__ inline Element *line_at(const Caches &caches, int row, int value, int kv_head, int block) {
    size_t line =
        (((size_t)value * caches.layers + caches.layer) * caches.kv_heads + kv_head) * caches.blocks[row] + block;
    return (Element *)caches.address[row] + line * BLOCK * caches.dim;
}

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(uint16_t x) { return exact::from_half(x); }
__device__ inline void put(float *to, float x) { *to = x; }
__device__ inline void put(uint16_t *to, float x) { *to = exact::to_half(x); }

// One thread for each key, and the value beside it.
template <class Element>
__device__ void store(const Caches &caches, const int *position, const float *key, const float *value, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int column = i % caches.dim, head = i / caches.dim % caches.kv_heads, row = i / caches.dim / caches.kv_heads;
    const int block = position[row] / BLOCK, place = position[row] % BLOCK;
    put(line_at<Element>(caches, row, 0, head, block) + column * BLOCK + place, key[i]);
    put(line_at<Element>(caches, row, 1, head, block) + place * caches.dim + column, value[i]);
}

__device__ inline float larger(float a, float b) { return b > a ? b : a; }

// The dot of the query with the key of position `place`: 16 lanes, then the tree.
template <class Element> __device__ inline float score_of(const Element *keys, const float *query, int dim, int place) {
    float lane[exact::LANES];
#pragma unroll
    for (int l = 0; l < exact::LANES; l++) lane[l] = 0.0f;
    for (int i = 0; i < dim; i += exact::LANES)
#pragma unroll
        for (int l = 0; l < exact::LANES; l++)
            if (i + l < dim) lane[l] = exact::fused(widened(keys[(i + l) * BLOCK + place]), query[i + l], lane[l]);
#pragma unroll
    for (int width = exact::LANES / 2; width > 0; width /= 2)
#pragma unroll
        for (int l = 0; l < width; l++) lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

// 64 threads or more for each (block of positions, query head, row): for scores a thread has a position, for sums it
// has columns. `partial` (rows, heads, gridDim.x, dim + 2) gets the weighted sum of the block's values, its largest
// score and its total.
template <class Element>
__device__ void attend(const float *query, const Caches &caches, const int *position, float scale, int first,
                       float *partial) {
    const int block = first + (int)blockIdx.x, head = blockIdx.y, row = blockIdx.z, heads = gridDim.y, dim = caches.dim;
    const int thread = threadIdx.x, left = position[row] + 1 - block * BLOCK, count = left < BLOCK ? left : BLOCK;
    if (count <= 0) return;
    __shared__ float asked[MAX_DIM], weight[BLOCK], largest;
    const size_t at = (size_t)row * heads + head;
    const int kv_head = head / (heads / caches.kv_heads);
    for (int d = thread; d < dim; d += blockDim.x) asked[d] = query[at * dim + d];
    __syncthreads();
    float score = MINUS_INFINITY; // of which exp is 0
    if (thread < count) score = score_of(line_at<Element>(caches, row, 0, kv_head, block), asked, dim, thread) * scale;
    if (thread < BLOCK) weight[thread] = score;
    __syncthreads();
    const unsigned some = (1u << exact::LANES) - 1;
    if (thread < exact::LANES) {
        float top = weight[thread];
        for (int i = exact::LANES; i < BLOCK; i += exact::LANES) top = larger(top, weight[thread + i]);
        top = fold_lanes(top, some, larger);
        if (thread == 0) largest = top;
    }
    __syncthreads();
    if (thread < BLOCK) weight[thread] = exact::exponential(score - largest);
    __syncthreads();
    float *to = partial + (at * gridDim.x + blockIdx.x) * (dim + 2);
    if (thread < exact::LANES) {
        float total = 0.0f;
        for (int i = 0; i < BLOCK; i += exact::LANES) total = total + weight[thread + i];
        total = fold_lanes(total, some, plus);
        if (thread == 0) to[dim] = largest, to[dim + 1] = total;
    }
    const Element *values = line_at<Element>(caches, row, 1, kv_head, block);
    for (int d = thread; d < dim; d += blockDim.x) {
        float sum = 0.0f;
#pragma unroll 16
        for (int p = 0; p < count; p++) sum = exact::fused(weight[p], widened(values[p * dim + d]), sum);
        to[d] = sum;
    }
}

} // namespace

#define ATTENTION(name, element)                                                                                       \
    extern "C" __global__ void store_##name(const unsigned long long *address, const int *blocks, int layer,           \
                                            int layers, int kv_heads, int dim, const int *position, const float *key,  \
                                            const float *value, int n) {                                               \
        store<element>({address, blocks, layer, layers, kv_heads, dim}, position, key, value, n);                      \
    }                                                                                                                  \
    extern "C" __global__ void attend_##name(const float *query, const unsigned long long *address, const int *blocks, \
                                             int layer, int layers, int kv_heads, int dim, const int *position,        \
                                             float scale, int first, float *partial) {                                 \
        attend<element>(query, {address, blocks, layer, layers, kv_heads, dim}, position, scale, first, partial);      \
    }
ATTENTION(f16, uint16_t)
ATTENTION(f32, float)

// Joins `n` blocks from `first` on to what came before them, in ascending order; a block for each (head, row). out
// (rows, heads, dim) holds the sums until the `last` call divides them; state (rows, heads, 2) largest and total.
extern "C" __global__ void merge_blocks(const float *partial, const int *position, int dim, int first, int n, int last,
                                        float *state, float *out) {
    const int head = blockIdx.x, row = blockIdx.y;
    const size_t at = (size_t)row * gridDim.x + head;
    float largest = 0.0f, total = 0.0f;
    for (int d = threadIdx.x; d < dim; d += blockDim.x) {
        float sum = first ? out[at * dim + d] : 0.0f;
        largest = state[2 * at], total = state[2 * at + 1];
        for (int b = 0; b < n && (first + b) * BLOCK <= position[row]; b++) {
            const float *block = partial + (at * n + b) * (dim + 2);
            if (first + b == 0) {
                sum = block[d], largest = block[dim], total = block[dim + 1];
                continue;
            }
            const float top = larger(largest, block[dim]);
            const float keep = exact::exponential(largest - top), take = exact::exponential(block[dim] - top);
            total = exact::fused(block[dim + 1], take, total * keep);
            sum = exact::fused(block[d], take, sum * keep);
            largest = top;
        }
        out[at * dim + d] = last ? sum / total : sum;
    }
    __syncthreads(); // everybody has read the state
    if (threadIdx.x == 0) state[2 * at] = largest, state[2 * at + 1] = total;
}
