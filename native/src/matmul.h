// Dots of weight rows with activation rows, in tiles.
#pragma once

#include "weights.h"

// store(a, r, value) for every activation a < n and weight row r of [from, to) of one matrix; each weight row is read
// once per TILE_ACTS activations while it is still in cache.
template <class Store>
void dot_rows(const Weights &w, long matrix, int from, int to, const Act *acts, long n, Store store) {
    TileFn tile = tile_of(w.type);
    float out[TILE_ACTS * TILE_ROWS];
    for (int r = from; r < to; r += TILE_ROWS) {
        int rows = to - r < TILE_ROWS ? to - r : TILE_ROWS;
        for (long a = 0; a < n; a += TILE_ACTS) {
            int count = n - a < TILE_ACTS ? (int)(n - a) : TILE_ACTS;
            tile(w.row(matrix, r), w.stride, rows, w.columns, acts + a, count, out);
            for (int i = 0; i < count; i++)
                for (int k = 0; k < rows; k++) store(a + i, r + k, out[i * TILE_ROWS + k]);
        }
    }
}

// Cuts rows into chunks of whole tiles: enough chunks for the threads, none too small to be worth a claim.
struct Chunks {
    int rows, size, count;
    Chunks(int rows, int threads, int groups = 1) : rows(rows) {
        int wanted = (threads == 1 ? 1 : 4 * threads + groups - 1) / groups;
        int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
        int per_chunk = (tiles + (wanted > 0 ? wanted : 1) - 1) / (wanted > 0 ? wanted : 1);
        size = per_chunk * TILE_ROWS;
        count = (rows + size - 1) / size;
    }
    int from(int chunk) const { return chunk * size; }
    int to(int chunk) const { return (chunk + 1) * size < rows ? (chunk + 1) * size : rows; }
};
