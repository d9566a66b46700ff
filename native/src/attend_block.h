// One block of attention for many query heads: lanes are positions while scores are made and columns while values are
// added, so that the sequence of fp32 operations in each lane is the contract's. Included once by each isa_*.cpp.
#pragma once

#include "isa_common.h"
#include "lanes.h"

namespace {

constexpr int HEADS = 4;       // query heads that share a load of keys or values
constexpr int SPAN = 2 * WIDE; // positions or columns computed together: HEADS * 2 sums hide the fma's latency
static_assert(exact::KV_BLOCK % SPAN == 0);

template <int N> struct Sums {
    Lanes at[N][2];
};

// Lane `LANE` of the 16 when WIDTH is 16; otherwise what the tree makes of the lanes LANE, LANE + WIDTH, ...
template <int N, int WIDTH, int LANE>
inline __attribute__((always_inline)) Sums<N> dots(const float *keys, int dim, const Head *heads) {
    Sums<N> out;
    if constexpr (WIDTH == exact::LANES) {
#pragma GCC unroll 16
        for (int h = 0; h < N; h++) out.at[h][0] = out.at[h][1] = all(0.0f);
        for (int i = LANE; i < dim; i += exact::LANES) {
            Lanes low = load(keys + (size_t)i * exact::KV_BLOCK),
                  high = load(keys + (size_t)i * exact::KV_BLOCK + WIDE);
#pragma GCC unroll 16
            for (int h = 0; h < N; h++) {
                Lanes x = all(heads[h].query[i]);
                out.at[h][0] = fused(low, x, out.at[h][0]);
                out.at[h][1] = fused(high, x, out.at[h][1]);
            }
        }
    } else {
        out = dots<N, 2 * WIDTH, LANE>(keys, dim, heads);
        Sums<N> other = dots<N, 2 * WIDTH, LANE + WIDTH>(keys, dim, heads);
#pragma GCC unroll 16
        for (int h = 0; h < N; h++) {
            out.at[h][0] = plus(out.at[h][0], other.at[h][0]);
            out.at[h][1] = plus(out.at[h][1], other.at[h][1]);
        }
    }
    return out;
}

// The tree over 16 lanes, in place: lane[0] is what `join` makes of all of them.
template <class Join> inline float fold_lanes(float *lane, Join join) {
#pragma GCC unroll 16
    for (int width = exact::LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) lane[l] = join(lane[l], lane[l + width]);
    return lane[0];
}

// Scores become probabilities relative to the block's largest, in place; places from `count` on become 0. Returns that
// largest.
inline float block_softmax(float (&score)[exact::KV_BLOCK], int count, float scale, float *total) {
    for (int i = count; i < exact::KV_BLOCK; i++) score[i] = -__builtin_inff(); // of which exp is 0
    for (int i = 0; i < exact::KV_BLOCK; i++) score[i] = score[i] * scale;
    auto larger = [](float a, float b) { return b > a ? b : a; };
    auto sum = [](float a, float b) { return a + b; };
    float top[exact::LANES], lane[exact::LANES] = {};
    for (int l = 0; l < exact::LANES; l++) top[l] = score[l];
    for (int i = exact::LANES; i < exact::KV_BLOCK; i += exact::LANES)
        for (int l = 0; l < exact::LANES; l++) top[l] = larger(top[l], score[i + l]);
    float largest = fold_lanes(top, larger);
    for (int i = 0; i < exact::KV_BLOCK; i++) score[i] = exact::exponential(score[i] - largest);
    for (int i = 0; i < exact::KV_BLOCK; i += exact::LANES)
        for (int l = 0; l < exact::LANES; l++) lane[l] = sum(lane[l], score[i + l]);
    *total = fold_lanes(lane, sum);
    return largest;
}

// How a block joins what came before it: sum = fma(block, take, sum * keep).
struct Merge {
    float keep, take;
};

inline Merge merge_softmax(Head &head, bool first, float largest, float total) {
    if (first) {
        head.largest = largest;
        head.total = total;
        return {};
    }
    float top = largest > head.largest ? largest : head.largest;
    float less[2] = {head.largest - top, largest - top}, factor[2];
    exponential_all(less, factor, 2);
    head.largest = top;
    head.total = exact::fused(total, factor[1], head.total * factor[0]);
    return {factor[0], factor[1]};
}

inline void merge_lanes(float *sum, Lanes block, bool first, Merge by) {
    store(sum, first ? block : fused(block, all(by.take), times(load(sum), all(by.keep))));
}

// Adds the values, weighted, in ascending order of positions, and merges that into each head's sum.
template <int N>
inline void weigh(const KvBlock &block, const float (*weight)[exact::KV_BLOCK], const Merge *by, Head *heads) {
    for (int d = 0; d < block.dim; d += SPAN) {
        Lanes sum[N][2];
#pragma GCC unroll 16
        for (int h = 0; h < N; h++) sum[h][0] = sum[h][1] = all(0.0f);
        const float *value = block.values + d;
        for (int p = 0; p < block.count; p++, value += block.dim) {
            Lanes low = load(value), high = load(value + WIDE);
#pragma GCC unroll 16
            for (int h = 0; h < N; h++) {
                Lanes w = all(weight[h][p]);
                sum[h][0] = fused(w, low, sum[h][0]);
                sum[h][1] = fused(w, high, sum[h][1]);
            }
        }
        int columns = block.dim - d < SPAN ? block.dim - d : SPAN;
        for (int h = 0; h < N; h++) {
            float *to = heads[h].sum + d, last[SPAN];
            if (columns < SPAN) memcpy(last, to, sizeof(float) * columns);
            float *at = columns < SPAN ? last : to;
            merge_lanes(at, sum[h][0], block.first, by[h]);
            merge_lanes(at + WIDE, sum[h][1], block.first, by[h]);
            if (columns < SPAN) memcpy(to, last, sizeof(float) * columns);
        }
    }
}

template <int N> void attend_heads(const KvBlock &block, Head *heads) {
    float score[N][exact::KV_BLOCK];
    for (int p = 0; p < block.count; p += SPAN) {
        Sums<N> found = dots<N, 1, 0>(block.keys + p, block.dim, heads);
        for (int h = 0; h < N; h++) store(score[h] + p, found.at[h][0]), store(score[h] + p + WIDE, found.at[h][1]);
    }
    Merge by[N];
    for (int h = 0; h < N; h++) {
        float total, largest = block_softmax(score[h], block.count, block.scale, &total);
        by[h] = merge_softmax(heads[h], block.first, largest, total);
    }
    weigh<N>(block, score, by, heads);
}

void attend_block(const KvBlock &block, Head *heads, int n) {
    for (; n >= HEADS; heads += HEADS, n -= HEADS) attend_heads<HEADS>(block, heads);
    switch (n) {
    case 1: return attend_heads<1>(block, heads);
    case 2: return attend_heads<2>(block, heads);
    case 3: return attend_heads<3>(block, heads);
    }
}

} // namespace
