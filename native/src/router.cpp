// Router top-k: best logits first, ties to the lowest id; weights from exp relative to the best.
#include "router.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "arrays.h"
#include "exact.h"
#include "row_tasks.h"

namespace {

void best_k(const float *logits, int n, int k, int32_t *ids) {
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int e = 0; e < n; e++) {
            bool taken = false;
            for (int i = 0; i < j; i++) taken = taken || ids[i] == e;
            if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
        }
        ids[j] = best;
    }
}

nb::object route(In<float, 2> logits, int k, bool normalise, float scale, Pool *pool) {
    Choice choice{k, normalise, scale};
    size_t rows = logits.shape(0), n = logits.shape(1);
    check_choice(choice, (long)n);
    NewArray<int32_t> ids({rows, (size_t)k});
    NewArray<float> weights({rows, (size_t)k});
    {
        nb::gil_scoped_release release;
        choose_experts(pool, logits.data(), (long)rows, (long)n, choice, ids.data, weights.data);
    }
    return nb::make_tuple(ids.object, weights.object);
}

} // namespace

void check_choice(const Choice &choice, long experts) { expect_range("k", choice.k, 1, std::min(31L, experts)); }

void choose_experts(Pool *pool, const float *logits, long rows, long n, const Choice &choice, int32_t *ids,
                    float *weights) {
    const auto &[k, normalise, scale] = choice;
    LowestBad bad;
    each_row(pool, rows, (size_t)n * k, [&](long r) {
        const float *row = logits + r * n;
        if (!std::all_of(row, row + n, [](float x) { return std::isfinite(x); })) return bad.note(r);
        int32_t *id = ids + r * k;
        float *weight = weights + r * k;
        best_k(row, (int)n, k, id);
        float total = 0.0f;
        if (!normalise)
            for (long e = 0; e < n; e++) total = total + exact::exponential(row[e] - row[id[0]]);
        for (int j = 0; j < k; j++) {
            weight[j] = exact::exponential(row[id[j]] - row[id[0]]);
            if (normalise) total = total + weight[j];
        }
        for (int j = 0; j < k; j++) weight[j] = (weight[j] / total) * scale;
    });
    bad.raise<NonFinite>();
}

void bind_router(nb::module_ &m) {
    m.def("route", &route, "logits"_a, "k"_a, "normalise"_a, "scale"_a, "pool"_a = nb::none());
}
