// Attention of a window's rows over the caches of their sequences.
#pragma once

#include <vector>

#include "kv_cache.h"

class Pool;

// Rows [from, to) of a window, all of one sequence, that walk its blocks together.
struct Run {
    const KvCache *cache;
    int from, to;
};

// Caches of sequences and, row by row, which of them it is: index into `caches`.
std::vector<Run> runs_of(const std::vector<KvCache *> &caches, const int32_t *row_cache, int rows);

struct Queries {
    const float *query;      // (rows, heads, dim)
    const int32_t *position; // (rows): row i attends to 0..position[i] of its cache, all of which are stored
    float *out;              // (rows, heads * dim)
    int heads, group, dim;   // `group` heads share a kv head
};

void attend(Pool &pool, int layer, const Queries &queries, const std::vector<Run> &runs);
