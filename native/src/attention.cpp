// Attention over one or several sequences' caches: blocks of 64 positions from 0, merged in ascending order. Rows of
// one sequence walk the blocks together, so that a block's keys and values are widened once for all of them.
#include "attention.h"

#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "exact.h"
#include "pool.h"

namespace {

constexpr int TOGETHER = 32; // rows of one task at most: bounds its memory, and leaves tasks for every thread

// The query heads of a run's rows that share one kv head, through all the blocks; their sums grow in `out`.
void attend_head(int layer, const Queries &queries, const Run &run, int kv_head) {
    const int group = queries.group, dim = queries.dim, count = (run.to - run.from) * group;
    std::vector<Head> heads(count);
    int positions = 0;
    for (int i = 0; i < count; i++) {
        int row = run.from + i / group;
        size_t at = ((size_t)row * queries.heads + (size_t)kv_head * group + i % group) * dim;
        heads[i] = Head{queries.query + at, queries.out + at, 0.0f, 0.0f};
        positions = queries.position[row] >= positions ? queries.position[row] + 1 : positions;
    }
    KvBlock block{};
    block.dim = dim;
    block.scale = 1.0f / exact::root((float)dim);
    thread_local std::vector<float> scratch; // of one size as long as the model is the same
    for (int start = 0; start < positions; start += exact::KV_BLOCK) {
        run.cache->load(layer, kv_head, start, scratch, block);
        block.first = start == 0;
        auto seen = [&](int i) { // how many of the block's positions a head attends to
            int left = queries.position[run.from + i / group] + 1 - start;
            return left < 0 ? 0 : left < exact::KV_BLOCK ? left : exact::KV_BLOCK;
        };
        for (int from = 0, to; from < count; from = to) {
            block.count = seen(from);
            for (to = from + 1; to < count && seen(to) == block.count;) to++;
            if (block.count > 0) kernels().attend_block(block, &heads[from], to - from);
        }
    }
    for (const Head &head : heads)
        for (int d = 0; d < dim; d++) head.sum[d] = head.sum[d] / head.total;
}

void attention(Pool &pool, int layer, In<float, 3> query, std::vector<KvCache *> caches, In<int32_t, 1> row_cache,
               In<int32_t, 1> row_position, Out<float, 2> out) {
    int rows = (int)query.shape(0), heads = (int)query.shape(1), dim = (int)query.shape(2);
    expect_equal("row_cache: length", row_cache.shape(0), query.shape(0));
    expect_equal("row_position: length", row_position.shape(0), query.shape(0));
    expect_equal("out: rows", out.shape(0), query.shape(0));
    expect_equal("out: columns", out.shape(1), (size_t)heads * dim);
    expect(!caches.empty(), "caches: one or more expected");
    for (const KvCache *cache : caches) expect(cache, "caches: a KvCache each expected, not None");
    const int kv_heads = caches[0]->kv_heads;
    for (const KvCache *cache : caches) {
        expect(cache->kv_heads == kv_heads && cache->head_dim == dim, "caches: kv heads or head_dim differ");
        expect(layer >= 0 && layer < cache->layers, "layer: out of range");
    }
    expect(heads % kv_heads == 0, "query: heads must be a multiple of kv heads");
    for (int r = 0; r < rows; r++) {
        expect(row_cache(r) >= 0 && (size_t)row_cache(r) < caches.size(), "row_cache: out of range");
        int stored = caches[row_cache(r)]->stored(layer);
        expect_range("row_position (what is stored)", row_position(r), 0, stored - 1);
    }
    nb::gil_scoped_release release;
    Queries queries{query.data(), row_position.data(), out.data(), heads, heads / kv_heads, dim};
    attend(pool, layer, queries, runs_of(caches, row_cache.data(), rows));
}

} // namespace

std::vector<Run> runs_of(const std::vector<KvCache *> &caches, const int32_t *row_cache, int rows) {
    std::vector<Run> runs;
    for (int r = 0; r < rows; r++) {
        const KvCache *cache = caches[row_cache[r]];
        if (runs.empty() || runs.back().cache != cache || r - runs.back().from == TOGETHER)
            runs.push_back({cache, r, r});
        runs.back().to = r + 1;
    }
    return runs;
}

void attend(Pool &pool, int layer, const Queries &queries, const std::vector<Run> &runs) {
    const int kv_heads = queries.heads / queries.group;
    pool.run((int)runs.size() * kv_heads,
             [&](int task) { attend_head(layer, queries, runs[task / kv_heads], task % kv_heads); });
}

void bind_attention(nb::module_ &m) {
    m.def("attention", &attention, "pool"_a, "layer"_a, "query"_a, "caches"_a, "row_cache"_a, "row_position"_a,
          "out"_a);
}
