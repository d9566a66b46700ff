// Dots of weight rows with activation rows, in tiles.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "inputs.h"
#include "weights.h"

class Pool;
class Rows;

constexpr int ROWS_TOGETHER = 8 * PACKED_ROWS; // weight rows that stay in cache for all activations

// store(a, from, values, count) for every activation a and for runs of weight rows, ROWS_TOGETHER at most, that make up
// [from, to) of one matrix, of which `from` begins a tile; each weight row is read once for as many activations as a
// tile takes, while it is still in cache.
template <class Store>
void dot_rows(const Weights &w, long matrix, int from, int to, const Inputs &inputs, Store store) {
    int r = from;
    if (w.packed) {
        PackedTileFn tile = packed_tile_of(w.type);
        alignas(64) float out[PACKED_ACTS * ROWS_TOGETHER];
        int in_groups = std::min(to, w.rows / PACKED_ROWS * PACKED_ROWS);
        for (; r < in_groups; r += ROWS_TOGETHER) {
            const int rows = std::min(in_groups - r, ROWS_TOGETHER);
            long first = 0;
            for (const ActTile &acts : inputs.tiles()) {
                for (int g = 0; g < rows; g += PACKED_ROWS)
                    tile(w.row(matrix, r + g), w.columns, acts, out + g, ROWS_TOGETHER);
                for (int a = 0; a < acts.n; a++) store(first + a, r, out + a * ROWS_TOGETHER, rows);
                first += acts.n;
            }
        }
        r = std::max(from, in_groups);
    }
    TileFn tile = tile_of(w.type);
    float out[TILE_ACTS * TILE_ROWS];
    for (; r < to; r += TILE_ROWS) {
        int rows = std::min(to - r, TILE_ROWS);
        for (long a = 0; a < inputs.count(); a += TILE_ACTS) {
            int count = (int)std::min<long>(inputs.count() - a, TILE_ACTS);
            tile(w.row(matrix, r), w.stride, rows, w.columns, inputs.rows() + a, count, out);
            for (int i = 0; i < count; i++) store(a + i, r, out + i * TILE_ROWS, rows);
        }
    }
}

// Cuts rows into chunks of whole tiles, packed or not: enough chunks for the threads, none too small to be worth a
// claim.
struct Chunks {
    int rows, size, count;
    Chunks(int rows, int threads, int groups = 1) : rows(rows) {
        int wanted = (threads == 1 ? 1 : 4 * threads + groups - 1) / groups;
        int tiles = (rows + PACKED_ROWS - 1) / PACKED_ROWS;
        int per_chunk = (tiles + (wanted > 0 ? wanted : 1) - 1) / (wanted > 0 ? wanted : 1);
        size = per_chunk * PACKED_ROWS;
        count = (rows + size - 1) / size;
    }
    int from(int chunk) const { return chunk * size; }
    int to(int chunk) const { return (chunk + 1) * size < rows ? (chunk + 1) * size : rows; }
};

struct Product {
    const Weights *weights;
    long matrix;
    float *out; // (rows, weights.rows)
};

// Each out = rows @ weights[matrix].T; all are shared out to the threads together. Throws NonFinite. Columns must fit.
void multiply(Pool &pool, Rows &rows, std::initializer_list<Product> products);
