// The expert feed-forward network: down(silu(gate x) * (up x)), for any set of (expert, row, weight) entries. A tile is
// up to N entries of one expert, so that its weights are read once for all of them.
#include "dots.h"

namespace {

struct Tile {
    int expert, first, count; // entries [first, first + count); none of an unused tile
};

// Tiles as three columns of numbers.
__device__ inline Tile tile_at(const int *tiles) {
    const int n = (int)gridDim.y, i = (int)blockIdx.y;
    return {tiles[i], tiles[n + i], tiles[2 * n + i]};
}

// Row `Team::row()` of the tile's expert, times its entries; lane a gets that of entry first + a. `rows_of` names the
// activation row of each entry; without it, an entry is its own row.
template <class Type, int N>
__device__ inline float tile_dots(const Tile &tile, const uint8_t *const *matrix, int rows, int columns,
                                  const Acts &acts, const int *rows_of) {
    int at[N];
    for (int i = 0; i < N; i++) {
        int entry = tile.first + (i < tile.count ? i : tile.count - 1);
        at[i] = rows_of ? rows_of[entry] : entry;
    }
    const int row = Team<Type>::row() < rows ? Team<Type>::row() : rows - 1;
    return Team<Type>::dots(matrix[tile.expert] + (size_t)row * row_bytes<Type>(columns), columns, acts, at);
}

// out (matrices, entries, rows): of the matrices that begin at `matrices`, `experts` addresses each, one for each z.
template <class Type, int N>
__device__ void widen(const uint8_t *const *matrices, int experts, int rows, int columns, const Acts &acts,
                      const int *tiles, const int *rows_of, int entries, float *out) {
    const Tile tile = tile_at(tiles);
    if (tile.count == 0) return;
    const float dot = tile_dots<Type, N>(tile, matrices + (size_t)blockIdx.z * experts, rows, columns, acts, rows_of);
    const int row = Team<Type>::row(), a = Team<Type>::lane();
    if (row < rows && a < N && a < tile.count) out[((size_t)blockIdx.z * entries + tile.first + a) * rows + row] = dot;
}

// The weighted row of each entry: stored in singles[slot], or added to sums[-1 - slot] on the fixed-point grid. An
// entry out of range is noted: the lowest stays in `fault`.
template <class Type, int N>
__device__ void narrow(const uint8_t *const *matrix, int rows, int columns, const Acts &acts, const int *tiles,
                       const float *weight, const int *slot, float *singles, long long *sums, int *fault) {
    const Tile tile = tile_at(tiles);
    if (tile.count == 0) return;
    const float dot = tile_dots<Type, N>(tile, matrix, rows, columns, acts, nullptr);
    const int row = Team<Type>::row(), a = Team<Type>::lane();
    if (row >= rows || a >= N || a >= tile.count) return;
    const int entry = tile.first + a, to = slot[entry];
    const float weighted = weight[entry] * dot;
    if (!exact::in_entry_range(weighted))
        atomicMin(fault, entry);
    else if (to >= 0)
        singles[(size_t)to * rows + row] = weighted;
    else // integers: in whatever order they come
        atomicAdd((unsigned long long *)&sums[(size_t)(-1 - to) * rows + row],
                  (unsigned long long)exact::to_fixed(weighted));
}

} // namespace

#define WIDEN(name, type, n)                                                                                           \
    extern "C" __global__ void widen_##name##_##n(const uint8_t *const *matrices, int experts, int rows, int columns,  \
                                                  const int8_t *codes, const float *scales, const float *values,       \
                                                  const int *tiles, const int *rows_of, int entries, float *out) {     \
        widen<type, n>(matrices, experts, rows, columns, {codes, scales, values}, tiles, rows_of, entries, out);       \
    }
#define NARROW(name, type, n)                                                                                          \
    extern "C" __global__ void narrow_##name##_##n(const uint8_t *const *matrix, int rows, int columns,                \
                                                   const int8_t *codes, const float *scales, const float *values,      \
                                                   const int *tiles, const float *weight, const int *slot,             \
                                                   float *singles, long long *sums, int *fault) {                      \
        narrow<type, n>(matrix, rows, columns, {codes, scales, values}, tiles, weight, slot, singles, sums, fault);    \
    }
#define EXPERT(name, type) WIDEN(name, type, 1) WIDEN(name, type, 8) NARROW(name, type, 1) NARROW(name, type, 8)
EM_EVERY_TYPE(EXPERT)

// gate = silu(gate) * up, n values.
extern "C" __global__ void silu_times(float *gate, const float *up, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) gate[i] = exact::silu(gate[i]) * up[i];
}
