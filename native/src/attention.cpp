// Attention over one or several sequences' caches: blocks of 64 positions from 0, merged in ascending order.
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "exact.h"
#include "kernels.h"
#include "pool.h"

namespace {

// Keys and values as [layer][kv head][position][head_dim]; untouched memory costs nothing.
class KvCache {
  public:
    const int layers, capacity, kv_heads, head_dim;
    const bool half;

    KvCache(int layers, int capacity, int kv_heads, int head_dim, const std::string &type)
        : layers(layers), capacity(capacity), kv_heads(kv_heads), head_dim(head_dim), half(type == "f16") {
        if (type != "f16" && type != "f32") refuse("type: f16 or f32 expected, found " + type);
        expect(layers > 0 && capacity > 0 && kv_heads > 0 && head_dim > 0, "sizes: 1 or more expected");
        element_ = half ? 2 : 4;
        double wanted = 2.0 * layers * kv_heads * capacity * (double)head_dim * element_;
        expect(wanted < 1e15, "sizes: the cache would be larger than any memory");
        bytes_ = 2 * (size_t)layers * kv_heads * capacity * head_dim * element_;
        data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data_ == MAP_FAILED) throw std::bad_alloc();
        stored_.assign(layers, 0);
    }
    ~KvCache() { munmap(data_, bytes_); }
    KvCache(const KvCache &) = delete;

    size_t bytes() const { return bytes_; }
    int stored(int layer) const { return stored_[layer]; }
    size_t stride() const { return (size_t)head_dim * element_; }

    uint8_t *at(bool value, int layer, int kv_head, int position) const {
        size_t line = (((size_t)value * layers + layer) * kv_heads + kv_head) * capacity + position;
        return (uint8_t *)data_ + line * stride();
    }

    void store(int layer, int position, In<float, 3> key, In<float, 3> value) {
        expect(layer >= 0 && layer < layers, "layer: out of range");
        for (const auto *kv : {&key, &value}) {
            expect_equal("key and value: kv heads", kv->shape(1), (size_t)kv_heads);
            expect_equal("key and value: head_dim", kv->shape(2), (size_t)head_dim);
        }
        expect_equal("value: rows", value.shape(0), key.shape(0));
        int n = (int)key.shape(0);
        expect_range("position (no holes)", position, 0, stored_[layer]);
        expect_range("key: rows that the capacity has room for", n, 0, capacity - position);
        nb::gil_scoped_release release;
        ExactFloats exact_floats;
        for (int i = 0; i < n; i++)
            for (int h = 0; h < kv_heads; h++) {
                size_t from = ((size_t)i * kv_heads + h) * head_dim;
                put(key.data() + from, at(false, layer, h, position + i));
                put(value.data() + from, at(true, layer, h, position + i));
            }
        if (position + n > stored_[layer]) stored_[layer] = position + n;
    }

  private:
    void put(const float *from, uint8_t *to) const {
        if (half)
            kernels().float_to_half(from, (uint16_t *)to, head_dim);
        else
            memcpy(to, from, stride());
    }

    int element_;
    size_t bytes_;
    void *data_;
    std::vector<int> stored_;
};

// One query head's running softmax over the blocks seen so far.
struct Running {
    float largest, total;
    std::vector<float> sum;
};

// Scores become probabilities relative to the block's largest, in place; unused places are 0. Returns that largest.
float block_softmax(float *score, int count, float scale, float *total) {
    float largest = score[0] * scale;
    for (int i = 0; i < count; i++) {
        score[i] = score[i] * scale;
        largest = score[i] > largest ? score[i] : largest;
    }
    for (int i = 0; i < count; i++) score[i] = score[i] - largest;
    kernels().exponential(score, score, count);
    for (int i = count; i < exact::KV_BLOCK; i++) score[i] = 0.0f;
    float lane[exact::LANES] = {};
    for (int i = 0; i < exact::KV_BLOCK; i++) lane[i % exact::LANES] = lane[i % exact::LANES] + score[i];
    for (int width = exact::LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) lane[l] = lane[l] + lane[l + width];
    *total = lane[0];
    return largest;
}

void merge(Running &run, bool first, float largest, float total, const float *sum, int dim) {
    if (first) {
        run.largest = largest;
        run.total = total;
        memcpy(run.sum.data(), sum, sizeof(float) * dim);
        return;
    }
    float top = largest > run.largest ? largest : run.largest;
    float keep = exact::exponential(run.largest - top), take = exact::exponential(largest - top);
    run.total = exact::fused(total, take, run.total * keep);
    kernels().merge(keep, run.sum.data(), take, sum, dim);
    run.largest = top;
}

// All query heads that share one kv head, for one row: query (group, dim) to out (group, dim).
void attend(const KvCache &cache, int layer, int kv_head, int positions, const float *query, int group, float *out) {
    const int dim = cache.head_dim;
    const float scale = 1.0f / std::sqrt((float)dim);
    TileFn tile = cache.half ? kernels().f16 : kernels().f32;
    std::vector<Running> running(group);
    for (auto &run : running) run.sum.resize(dim);
    std::vector<float> score((size_t)group * exact::KV_BLOCK), sum((size_t)group * dim), line(dim);
    for (int start = 0; start < positions; start += exact::KV_BLOCK) {
        int count = positions - start < exact::KV_BLOCK ? positions - start : exact::KV_BLOCK;
        for (int p = 0; p < count; p += TILE_ROWS) {
            int rows = count - p < TILE_ROWS ? count - p : TILE_ROWS;
            for (int h = 0; h < group; h += TILE_ACTS) {
                Act act[TILE_ACTS];
                int heads = group - h < TILE_ACTS ? group - h : TILE_ACTS;
                for (int i = 0; i < heads; i++) act[i] = Act{nullptr, nullptr, nullptr, query + (size_t)(h + i) * dim};
                float dots[TILE_ACTS * TILE_ROWS];
                tile(cache.at(false, layer, kv_head, start + p), cache.stride(), rows, dim, act, heads, dots);
                for (int i = 0; i < heads; i++)
                    memcpy(&score[(size_t)(h + i) * exact::KV_BLOCK + p], dots + i * TILE_ROWS, sizeof(float) * rows);
            }
        }
        std::vector<float> largest(group), total(group);
        for (int h = 0; h < group; h++)
            largest[h] = block_softmax(&score[(size_t)h * exact::KV_BLOCK], count, scale, &total[h]);
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int p = 0; p < count; p++) {
            const uint8_t *stored = cache.at(true, layer, kv_head, start + p);
            const float *value = (const float *)stored;
            if (cache.half) {
                kernels().half_to_float((const uint16_t *)stored, line.data(), dim);
                value = line.data();
            }
            for (int h = 0; h < group; h++)
                kernels().add_scaled(score[(size_t)h * exact::KV_BLOCK + p], value, &sum[(size_t)h * dim], dim);
        }
        for (int h = 0; h < group; h++) merge(running[h], start == 0, largest[h], total[h], &sum[(size_t)h * dim], dim);
    }
    for (int h = 0; h < group; h++)
        for (int d = 0; d < dim; d++) out[(size_t)h * dim + d] = running[h].sum[d] / running[h].total;
}

void attention(Pool &pool, int layer, In<float, 3> query, std::vector<const KvCache *> caches, In<int32_t, 1> row_cache,
               In<int32_t, 1> row_position, Out<float, 2> out) {
    int rows = (int)query.shape(0), heads = (int)query.shape(1), dim = (int)query.shape(2);
    expect_equal("row_cache: length", row_cache.shape(0), query.shape(0));
    expect_equal("row_position: length", row_position.shape(0), query.shape(0));
    expect_equal("out: rows", out.shape(0), query.shape(0));
    expect_equal("out: columns", out.shape(1), (size_t)heads * dim);
    expect(!caches.empty(), "caches: one or more expected");
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
    const int group = heads / kv_heads;
    pool.run(rows * kv_heads, [&](int task) {
        int r = task / kv_heads, h = task % kv_heads;
        size_t at = ((size_t)r * heads + (size_t)h * group) * dim;
        attend(*caches[row_cache(r)], layer, h, row_position(r) + 1, query.data() + at, group, out.data() + at);
    });
}

} // namespace

void bind_attention(nb::module_ &m) {
    nb::class_<KvCache>(m, "KvCache")
        .def(nb::init<int, int, int, int, const std::string &>(), "layers"_a, "capacity"_a, "kv_heads"_a, "head_dim"_a,
             "type"_a)
        .def_ro("layers", &KvCache::layers)
        .def_ro("capacity", &KvCache::capacity)
        .def_ro("kv_heads", &KvCache::kv_heads)
        .def_ro("head_dim", &KvCache::head_dim)
        .def_prop_ro("bytes", &KvCache::bytes)
        .def("store", &KvCache::store, "layer"_a, "position"_a, nb::arg("key").noconvert(),
             nb::arg("value").noconvert());
    m.def("attention", &attention, "pool"_a, "layer"_a, nb::arg("query").noconvert(), "caches"_a,
          nb::arg("row_cache").noconvert(), nb::arg("row_position").noconvert(), nb::arg("out").noconvert());
}
