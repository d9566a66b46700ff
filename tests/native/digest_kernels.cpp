// Prints the names of the instruction sets that it can run or, given one of these, one digest per kernel for fixed
// pseudo-random inputs: equal digests on two processors mean equal bits.
#include <cstdio>
#include <cstring>
#include <vector>

#include "../../native/src/blocks.h"
#include "../../native/src/inputs.h"
#include "../../native/src/runnable.h"

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

// Quantised activation rows: random ones, or with every code at an end of its range.
class Activations {
  public:
    Activations(int rows, int columns, bool extreme)
        : rows_(rows), columns_(columns), values_(rows * columns), scales_(values_.size() / 32 + 16),
          sums_(values_.size() / 32), codes_(values_.size() + 256), sums16_(values_.size() / 16 + 16) {
        Random random{5};
        for (auto &v : values_) v = extreme ? (random.real() < 0 ? -1.0f : 1.0f) : random.real();
        SCALAR_KERNELS.quantise(values_.data(), rows * columns / 32 * 32, codes_.data(), scales_.data(),
                                sums16_.data());
        for (size_t s = 0; s < sums_.size(); s++) sums_[s] = (float)(sums16_[2 * s] + sums16_[2 * s + 1]);
    }
    std::vector<Act> acts() const {
        std::vector<Act> all;
        for (int a = 0; a < rows_; a++) {
            size_t at = (size_t)a * columns_;
            all.push_back({&codes_[at], &scales_[at / 32], &sums16_[at / 16], &sums_[at / 32], &values_[at]});
        }
        return all;
    }

  private:
    int rows_, columns_;
    std::vector<float> values_, scales_, sums_;
    std::vector<int8_t> codes_;
    std::vector<int16_t> sums16_;
};

// Random bytes, or those whose codes lie at the ends of their range.
void fill(std::vector<uint8_t> &bytes, bool extreme) {
    const uint8_t ends[] = {0x00, 0x7f, 0x80, 0xff};
    Random random{42};
    for (auto &byte : bytes) byte = extreme ? ends[random.next() & 3] : (uint8_t)random.next();
}

// The upper byte of an fp16 number, which becomes small and finite.
void tame(uint8_t &byte) { byte = (byte & 0x83) | 0x20; }

// A tile of rows; `half_at` says where a block keeps its fp16 numbers.
template <class Type> void tile(const char *name, TileFn function, int columns, std::vector<int> half_at) {
    const size_t stride = (size_t)columns / Type::COLUMNS * Type::BYTES;
    std::vector<uint8_t> w(TILE_ROWS * stride);
    fill(w, false);
    for (size_t at = 0; at < w.size(); at += Type::BYTES)
        for (int h : half_at) tame(w[at + h + 1]);
    Random random{43};
    if (Type::BYTES == 4)
        for (size_t i = 0; i < w.size() / 4; i++) {
            float v = random.real();
            memcpy(&w[4 * i], &v, 4);
        }
    if (Type::BYTES == 2)
        for (size_t i = 0; i < w.size() / 2; i++) w[2 * i + 1] = (w[2 * i + 1] & 0xbf) | 0x20;
    Activations activations(TILE_ACTS, columns, false);
    std::vector<float> out(TILE_ACTS * TILE_ROWS);
    function(w.data(), stride, TILE_ROWS, columns, activations.acts().data(), TILE_ACTS, out.data());
    print(name, out);
}

// Groups of packed rows, which begin every block with the fp16 numbers of 16 rows: one each, or two.
template <class Type> void packed_tile(const char *name, PackedTileFn function, int numbers) {
    std::vector<float> all;
    for (int columns : {32, 256, 288, 768}) {
        if (columns % Type::COLUMNS) continue;
        for (bool extreme : {false, true}) {
            const size_t block_bytes = PACKED_ROWS * Type::BYTES;
            std::vector<uint8_t> w(columns / Type::COLUMNS * block_bytes);
            fill(w, extreme);
            for (size_t at = 0; at < w.size(); at += block_bytes)
                for (int i = 0; i < numbers * PACKED_ROWS; i++) tame(w[at + 2 * i + 1]);
            Activations activations(PACKED_ACTS, columns, extreme);
            for (int n : {1, 3, PACKED_ACTS}) {
                std::vector<float> out(n * PACKED_ROWS);
                std::vector<Act> acts = activations.acts();
                Inputs inputs(acts.data(), n, columns, true);
                inputs.gather();
                function(w.data(), columns, inputs.tiles().front(), out.data(), PACKED_ROWS);
                all.insert(all.end(), out.begin(), out.end());
            }
        }
    }
    print(name, all);
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

void print_digests(const Kernels &k) {
    tile<blocks::F32>("f32", k.f32, 512, {});
    tile<blocks::F16>("f16", k.f16, 512, {});
    tile<blocks::BF16>("bf16", k.bf16, 512, {});
    tile<blocks::Q4_0>("q4_0", k.rows.q4_0, 608, {0}); // 608: the last block is a short one
    tile<blocks::Q4_1>("q4_1", k.rows.q4_1, 608, {0, 2});
    tile<blocks::Q5_0>("q5_0", k.rows.q5_0, 608, {0});
    tile<blocks::Q5_1>("q5_1", k.rows.q5_1, 608, {0, 2});
    tile<blocks::Q8_0>("q8_0", k.rows.q8_0, 608, {0});
    tile<blocks::Q4_K>("q4_k", k.rows.q4_k, 512, {0, 2});
    tile<blocks::Q5_K>("q5_k", k.rows.q5_k, 512, {0, 2});
    tile<blocks::Q6_K>("q6_k", k.rows.q6_k, 512, {208});
    packed_tile<blocks::Q4_0>("packed_q4_0", k.packed.q4_0, 1);
    packed_tile<blocks::Q4_1>("packed_q4_1", k.packed.q4_1, 2);
    packed_tile<blocks::Q5_0>("packed_q5_0", k.packed.q5_0, 1);
    packed_tile<blocks::Q5_1>("packed_q5_1", k.packed.q5_1, 2);
    packed_tile<blocks::Q8_0>("packed_q8_0", k.packed.q8_0, 1);
    packed_tile<blocks::Q4_K>("packed_q4_k", k.packed.q4_k, 2);
    packed_tile<blocks::Q5_K>("packed_q5_k", k.packed.q5_k, 2);
    packed_tile<blocks::Q6_K>("packed_q6_k", k.packed.q6_k, 1);

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
    k.weigh(x.data(), 0.37f, z.data(), n), print("weigh", z);
    k.add_fixed(z.data(), fixed.data(), n), print("add_fixed", fixed);
}

} // namespace

int main(int count, char **names) {
    for (const Kernels *k : runnable_kernels()) {
        if (count == 1)
            puts(k->name);
        else if (!strcmp(names[1], k->name))
            print_digests(*k);
    }
}
