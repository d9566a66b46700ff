// Router top-k: best logits first, ties to the lowest id; weights from exp relative to the best.
#include "team.h"

namespace {

struct Candidate {
    float logit;
    int id; // -1: none
};

__device__ inline Candidate better(Candidate a, Candidate b) {
    if (b.id < 0) return a;
    return a.id < 0 || b.logit > a.logit || (b.logit == a.logit && b.id < a.id) ? b : a;
}

// Of the n logits, in every lane of the warp.
__device__ inline Candidate best_of(const float *logits, int n) {
    Candidate best{0.0f, -1};
    for (int e = lane_of(); e < n; e += WARP)
        if (!(logits[e] == MINUS_INFINITY)) best = better(best, {logits[e], e});
    for (int other = WARP / 2; other > 0; other /= 2)
        best =
            better(best, {__shfl_xor_sync(EVERY_LANE, best.logit, other), __shfl_xor_sync(EVERY_LANE, best.id, other)});
    return best;
}

} // namespace

// A warp for each row of n logits, of which the chosen ones are overwritten. ids and weights (rows, k). A row with a
// logit that is not finite is noted: the lowest such row stays in `fault`, and its ids are worth nothing.
extern "C" __global__ void route(float *logits, int n, int k, int normalise, float scale, int *ids, float *weights,
                                 int *fault) {
    const int row = (int)blockIdx.x, lane = lane_of();
    float *left = logits + (size_t)row * n, *weight = weights + (size_t)row * k;
    bool finite = true;
    for (int e = lane; e < n; e += WARP) finite = finite && (exact::bits_of(left[e]) & 0x7fffffffu) < 0x7f800000u;
    if (!finite) atomicMin(fault, row);
    __syncwarp();
    const Candidate best = best_of(left, n);
    float total = 0.0f;
    if (!normalise)
        for (int e = 0; e < n; e++) total = total + exact::exponential(left[e] - best.logit);
    __syncwarp();
    for (int j = 0; j < k; j++) {
        const Candidate next = best_of(left, n);
        const float share = exact::exponential(next.logit - best.logit);
        if (normalise) total = total + share;
        __syncwarp();
        if (lane == 0) {
            ids[(size_t)row * k + j] = next.id < 0 ? 0 : next.id;
            weight[j] = share;
            if (next.id >= 0) left[next.id] = MINUS_INFINITY;
        }
        __syncwarp();
    }
    for (int j = lane; j < k; j += WARP) weight[j] = (weight[j] / total) * scale;
}
