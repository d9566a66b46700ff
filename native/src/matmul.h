// Dots of weight rows with activation rows, in tiles.
#pragma once

#include "weights.h"

// store(a, from, values, count) for every activation a < n and for runs of weight rows that make up [from, to) of one
// matrix, of which `from` begins a tile; each weight row is read once for as many activations as a tile takes, while it
// is still in cache.
template <class Store>
void dot_rows(const Weights &w, long matrix, int from, int to, const Act *acts, long n, Store store) {
    int r = from;
    if (w.packed) {
        PackedTileFn tile = packed_tile_of(w.type);
        alignas(64) float out[PACKED_ACTS * PACKED_ROWS];
        for (; r < to && w.in_groups(r); r += PACKED_ROWS)
            for (long a = 0; a < n; a += PACKED_ACTS) {
                int count = n - a < PACKED_ACTS ? (int)(n - a) : PACKED_ACTS;
                tile(w.row(matrix, r), w.columns, acts + a, count, out);
                for (int i = 0; i < count; i++) store(a + i, r, out + i * PACKED_ROWS, PACKED_ROWS);
            }
    }
    TileFn tile = tile_of(w.type);
    float out[TILE_ACTS * TILE_ROWS];
    for (; r < to; r += TILE_ROWS) {
        int rows = to - r < TILE_ROWS ? to - r : TILE_ROWS;
        for (long a = 0; a < n; a += TILE_ACTS) {
            int count = n - a < TILE_ACTS ? (int)(n - a) : TILE_ACTS;
            tile(w.row(matrix, r), w.stride, rows, w.columns, acts + a, count, out);
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
