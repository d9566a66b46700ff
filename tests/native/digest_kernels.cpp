// Prints one digest per kernel for fixed pseudo-random inputs: equal digests on two processors mean equal bits.
#include <cstdio>
#include <vector>

#include "../../native/src/blocks.h"
#include "../../native/src/kernels.h"

namespace {

struct Random { // splitmix64
    uint64_t state;
    uint64_t next() {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    float real() { return (float)((double)(int64_t)next() * 1.0842021724855044e-19); } // -1..1
};

template <class T> void print(const char *name, const std::vector<T> &values) {
    uint64_t hash = 14695981039346656037u;
    const uint8_t *bytes = (const uint8_t *)values.data();
    for (size_t i = 0; i < values.size() * sizeof(T); i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    printf("%s %016llx\n", name, (unsigned long long)hash);
}

// One tile of random rows; `half_at` says where a block keeps its fp16 numbers, which are made small and finite.
template <class Type> void tile(const char *name, TileFn function, int columns, std::vector<int> half_at) {
    Random random{42};
    const size_t stride = (size_t)columns / Type::COLUMNS * Type::BYTES;
    std::vector<uint8_t> w(TILE_ROWS * stride);
    for (auto &byte : w) byte = (uint8_t)random.next();
    for (size_t at = 0; at < w.size(); at += Type::BYTES)
        for (int h : half_at) w[at + h + 1] = (w[at + h + 1] & 0x83) | 0x20;
    if (Type::BYTES == 4)
        for (size_t i = 0; i < w.size() / 4; i++) {
            float v = random.real();
            memcpy(&w[4 * i], &v, 4);
        }
    if (Type::BYTES == 2)
        for (size_t i = 0; i < w.size() / 2; i++) w[2 * i + 1] = (w[2 * i + 1] & 0xbf) | 0x20;
    std::vector<float> values(TILE_ACTS * columns), scales(values.size() / 32 + 16), out(TILE_ACTS * TILE_ROWS);
    std::vector<int8_t> codes(values.size() + 256);
    std::vector<int16_t> sums(values.size() / 16 + 16);
    for (auto &v : values) v = random.real();
    SCALAR_KERNELS.quantise(values.data(), (int)values.size(), codes.data(), scales.data(), sums.data());
    Act acts[TILE_ACTS];
    for (int a = 0; a < TILE_ACTS; a++)
        acts[a] = {&codes[a * columns], &scales[a * columns / 32], &sums[a * columns / 16], &values[a * columns]};
    function(w.data(), stride, TILE_ROWS, columns, acts, TILE_ACTS, out.data());
    print(name, out);
}

// Seven heads of 40 columns through two whole blocks and a part of one.
void attend(const Kernels &k) {
    Random random{9};
    const int dim = 40, heads = 7;
    std::vector<float> keys(dim * exact::KV_BLOCK), values(keys.size() + 64), query(heads * dim), sum(heads * dim);
    std::vector<Head> head;
    for (int h = 0; h < heads; h++) head.push_back({&query[h * dim], &sum[h * dim], 0.0f, 0.0f});
    for (auto &v : query) v = random.real();
    for (int count : {exact::KV_BLOCK, exact::KV_BLOCK, 23}) {
        for (auto *kv : {&keys, &values})
            for (auto &v : *kv) v = random.real();
        bool first = head[0].total == 0.0f;
        k.attend_block({keys.data(), values.data(), dim, count, 0.158f, first}, head.data(), heads);
    }
    std::vector<float> softmax;
    for (const Head &one : head) softmax.insert(softmax.end(), {one.largest, one.total});
    print("attend_sum", sum), print("attend_softmax", softmax);
}

} // namespace

int main() {
    const Kernels &k = SCALAR_KERNELS;
    tile<blocks::F32>("f32", k.f32, 512, {});
    tile<blocks::F16>("f16", k.f16, 512, {});
    tile<blocks::BF16>("bf16", k.bf16, 512, {});
    tile<blocks::Q4_0>("q4_0", k.q4_0, 608, {0}); // 608: the last block is a short one
    tile<blocks::Q4_1>("q4_1", k.q4_1, 608, {0, 2});
    tile<blocks::Q5_0>("q5_0", k.q5_0, 608, {0});
    tile<blocks::Q5_1>("q5_1", k.q5_1, 608, {0, 2});
    tile<blocks::Q8_0>("q8_0", k.q8_0, 608, {0});
    tile<blocks::Q4_K>("q4_k", k.q4_k, 512, {0, 2});
    tile<blocks::Q5_K>("q5_k", k.q5_k, 512, {0, 2});
    tile<blocks::Q6_K>("q6_k", k.q6_k, 512, {208});

    Random random{7};
    const int n = 4096;
    std::vector<float> x(n), y(n), z(n), scales(n / 32);
    for (auto &v : x) v = 90.0f * random.real();
    std::vector<int8_t> codes(n);
    std::vector<int16_t> sums(n / 16);
    std::vector<uint16_t> half(n);
    k.quantise(x.data(), n, codes.data(), scales.data(), sums.data());
    print("codes", codes), print("scales", scales), print("sums", sums);
    k.exponential(x.data(), y.data(), n), print("exponential", y);
    k.silu_times(x.data(), y.data(), z.data(), n), print("silu_times", z);
    k.float_to_half(x.data(), half.data(), n), print("to_half", half);
    k.half_to_float(half.data(), y.data(), n), print("from_half", y);
    k.norm_scale(x.data(), y.data(), 0.37f, z.data(), n), print("norm_scale", z);
    k.rotate(z.data(), x.data(), y.data(), n / 2), print("rotate", z);
    attend(k);
    std::vector<float> sine(n), cosine(n);
    for (int i = 0; i < n; i++) exact::sine_cosine(8.0 * i * 1.01, 1.1386294361, &sine[i], &cosine[i]);
    print("sine", sine), print("cosine", cosine);
    std::vector<int64_t> fixed(n);
    for (int i = 0; i < n; i++) fixed[i] = exact::to_fixed(x[i]);
    print("fixed", fixed);
}
