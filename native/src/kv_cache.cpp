#include "kv_cache.h"

#include <new>
#include <sys/mman.h>

#include <nanobind/stl/string.h>

#include "arrays.h"
#include "exact.h"
#include "pool.h"

namespace {

constexpr int BLOCK = exact::KV_BLOCK;
constexpr size_t SLACK = 256; // vector loads of the last columns read past a block's end

// One position's keys go to every 64th place.
template <class T> void scatter(const T *from, int n, uint8_t *block, int position) {
    T *to = (T *)block + position;
    for (int d = 0; d < n; d++) to[(size_t)d * BLOCK] = from[d];
}

} // namespace

KvCache::KvCache(int layers, int capacity, int kv_heads, int head_dim, const std::string &type)
    : layers(layers), capacity(capacity), kv_heads(kv_heads), head_dim(head_dim), half(type == "f16") {
    if (type != "f16" && type != "f32") refuse("type: f16 or f32 expected, found " + type);
    expect(layers > 0 && capacity > 0 && kv_heads > 0 && head_dim > 0, "sizes: 1 or more expected");
    element_ = half ? 2 : 4;
    line_ = (size_t)BLOCK * head_dim * element_;
    blocks_ = ((size_t)capacity + BLOCK - 1) / BLOCK;
    double wanted = 2.0 * layers * kv_heads * (double)blocks_ * line_;
    expect(wanted < 1e15, "sizes: the cache would be larger than any memory");
    bytes_ = 2 * (size_t)layers * kv_heads * blocks_ * line_;
    mapped_ = bytes_ + SLACK;
    void *data = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = (uint8_t *)data;
    stored_.assign(layers, 0);
}

KvCache::~KvCache() { munmap(data_, mapped_); }

uint8_t *KvCache::block_at(bool value, int layer, int kv_head, int start) const {
    return data_ + ((((size_t)value * layers + layer) * kv_heads + kv_head) * blocks_ + start / BLOCK) * line_;
}

void KvCache::check_room(int layer, int position, int n) const {
    expect(layer >= 0 && layer < layers, "layer: out of range");
    expect_range("position (no holes)", position, 0, stored_[layer]);
    expect_range("key: rows that the capacity has room for", n, 0, capacity - position);
}

void KvCache::store(int layer, int position, int n, const float *key, const float *value) {
    ExactFloats exact_floats;
    std::vector<uint16_t> line(head_dim);
    for (int i = 0; i < n; i++)
        for (int h = 0; h < kv_heads; h++) {
            size_t from = ((size_t)i * kv_heads + h) * head_dim;
            uint8_t *keys = block_at(false, layer, h, position + i);
            uint8_t *values = block_at(true, layer, h, position + i);
            int at = (position + i) % BLOCK;
            if (half) {
                kernels().float_to_half(key + from, line.data(), head_dim);
                scatter(line.data(), head_dim, keys, at);
                kernels().float_to_half(value + from, (uint16_t *)values + (size_t)at * head_dim, head_dim);
            } else {
                scatter(key + from, head_dim, keys, at);
                memcpy((float *)values + (size_t)at * head_dim, value + from, sizeof(float) * head_dim);
            }
        }
    if (position + n > stored_[layer]) stored_[layer] = position + n;
}

void KvCache::load(int layer, int kv_head, int start, std::vector<float> &scratch, KvBlock &block) const {
    const uint8_t *keys = block_at(false, layer, kv_head, start), *values = block_at(true, layer, kv_head, start);
    if (half) {
        int n = BLOCK * head_dim;
        scratch.resize(2 * (size_t)n + SLACK / sizeof(float));
        kernels().half_to_float((const uint16_t *)keys, &scratch[0], n);
        kernels().half_to_float((const uint16_t *)values, &scratch[n], n);
        block.keys = &scratch[0], block.values = &scratch[n];
    } else {
        block.keys = (const float *)keys, block.values = (const float *)values;
    }
}

namespace {

void store(KvCache &cache, int layer, int position, In<float, 3> key, In<float, 3> value) {
    for (const auto *kv : {&key, &value}) {
        expect_equal("key and value: kv heads", kv->shape(1), (size_t)cache.kv_heads);
        expect_equal("key and value: head_dim", kv->shape(2), (size_t)cache.head_dim);
    }
    expect_equal("value: rows", value.shape(0), key.shape(0));
    int n = (int)key.shape(0);
    cache.check_room(layer, position, n);
    nb::gil_scoped_release release;
    cache.store(layer, position, n, key.data(), value.data());
}

} // namespace

void bind_kv_cache(nb::module_ &m) {
    nb::class_<KvCache>(m, "KvCache")
        .def(nb::init<int, int, int, int, const std::string &>(), "layers"_a, "capacity"_a, "kv_heads"_a, "head_dim"_a,
             "type"_a)
        .def_ro("layers", &KvCache::layers)
        .def_ro("capacity", &KvCache::capacity)
        .def_ro("kv_heads", &KvCache::kv_heads)
        .def_ro("head_dim", &KvCache::head_dim)
        .def_prop_ro("bytes", &KvCache::bytes)
        .def("store", &store, "layer"_a, "position"_a, "key"_a, "value"_a);
}
