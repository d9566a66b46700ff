// What a layer computes before its experts, in one call each: the attention half, and which experts take what.
#include <memory>
#include <string>
#include <utility>

#include <nanobind/stl/unique_ptr.h>

#include "elementwise.h"
#include "matmul.h"
#include "pool.h"
#include "router.h"
#include "row_tasks.h"
#include "step_buffers.h"

namespace {

void expect_matrix(const char *name, const Weights &weights, size_t rows, size_t columns) {
    std::string text(name);
    expect_equal((text + ": rows").c_str(), (size_t)weights.rows, rows);
    expect_equal((text + ": columns").c_str(), (size_t)weights.columns, columns);
    expect_equal((text + ": matrices").c_str(), (size_t)weights.matrices, 1);
}

class AttentionHalf {
  public:
    AttentionHalf(In<float, 1> norm, const Weights &query, const Weights &key, const Weights &value,
                  In<float, 1> query_norm, In<float, 1> key_norm, const Weights &output, float eps)
        : norm_(norm), query_norm_(query_norm), key_norm_(key_norm), query_(query), key_(key), value_(value),
          output_(output), eps_(eps) {
        size_t width = norm.shape(0), dim = query_norm.shape(0);
        expect(width > 0 && dim > 0, "norms: one value or more expected");
        expect_equal("key_norm: length", key_norm.shape(0), dim);
        expect_matrix("query", query, query.rows, width);
        expect_matrix("key", key, key.rows, width);
        expect_matrix("value", value, key.rows, width);
        expect_matrix("output", output, width, query.rows);
    }

    void attend(Pool &pool, int layer, StepBuffers &step) {
        expect_equal("step: width", step.width, norm_.shape(0));
        expect_equal("step: head_dim", step.head_dim, query_norm_.shape(0));
        expect_equal("step: query columns", (size_t)step.heads * step.head_dim, query_.rows);
        expect_equal("step: key columns", (size_t)step.kv_heads * step.head_dim, key_.rows);
        for (const Part &part : step.parts) part.cache->check_room(layer, part.position, part.rows);
        nb::gil_scoped_release release;
        norm_rows(&pool, step.x.data(), norm_.data(), eps_, step.normed.data(), step.rows, step.width);
        step.normed_rows.renew();
        multiply(pool, step.normed_rows,
                 {{&query_, 0, step.query.data()}, {&key_, 0, step.key.data()}, {&value_, 0, step.value.data()}});
        place_heads(pool, step);
        for (const Part &part : step.parts) {
            size_t at = (size_t)part.from * step.kv_heads * step.head_dim;
            part.cache->store(layer, part.position, part.rows, step.key.data() + at, step.value.data() + at);
        }
        Queries queries{step.query.data(), step.row_position.data(),   step.attended.data(),
                        step.heads,        step.heads / step.kv_heads, step.head_dim};
        ::attend(pool, layer, queries, step.runs);
        step.attended_rows.renew();
        multiply(pool, step.attended_rows, {{&output_, 0, step.normed.data()}});
        add_rows(&pool, step.x.data(), step.normed.data(), step.rows, step.width);
    }

  private:
    // Norms the heads of queries and keys, and turns them to their rows' positions.
    void place_heads(Pool &pool, StepBuffers &step) const {
        int dim = step.head_dim, half = dim / 2;
        each_row(&pool, step.rows, (size_t)(step.heads + step.kv_heads) * dim, [&](long r) {
            auto place = [&](float *all, const float *norm, int heads) {
                float *row = all + (size_t)r * heads * dim;
                for (int h = 0; h < heads; h++) norm_row(row + h * dim, norm, eps_, row + h * dim, dim);
                turn_heads(row, heads, step.cos.data() + r * half, step.sin.data() + r * half, half);
            };
            place(step.query.data(), query_norm_.data(), step.heads);
            place(step.key.data(), key_norm_.data(), step.kv_heads);
        });
    }

    Kept<In<float, 1>> norm_, query_norm_, key_norm_;
    const Weights &query_, &key_, &value_, &output_; // kept alive by the binding
    float eps_;
};

class ExpertRouter {
  public:
    ExpertRouter(In<float, 1> norm, const Weights &weights, float eps, int k, bool normalise, float scale)
        : norm_(norm), weights_(weights), eps_(eps), choice_{k, normalise, scale} {
        expect_matrix("weights", weights, weights.rows, norm.shape(0));
        check_choice(choice_, weights.rows);
    }

    nb::object route(Pool &pool, StepBuffers &step, bool quantise) {
        expect_equal("step: width", step.width, norm_.shape(0));
        expect_equal("step: router columns", step.router.shape(1), weights_.rows);
        size_t k = choice_.k;
        NewArray<int32_t> ids({(size_t)step.rows, k});
        NewArray<float> shares({(size_t)step.rows, k});
        auto rows = std::make_unique<Rows>(Rows::Lent{step.normed.data()}, step.rows, step.width);
        {
            nb::gil_scoped_release release;
            norm_rows(&pool, step.x.data(), norm_.data(), eps_, step.normed.data(), step.rows, step.width);
            multiply(pool, *rows, {{&weights_, 0, step.router.data()}});
            choose_experts(&pool, step.router.data(), step.rows, weights_.rows, choice_, ids.data, shares.data);
            if (quantise) // here, where a bad row has a name, and before anybody works on it
                rows->quantise(&pool), rows->drop_values();
            else
                rows->keep_values(); // they may be on their way when the buffer has the next layer's
        }
        return nb::make_tuple(std::move(rows), ids.object, shares.object);
    }

  private:
    Kept<In<float, 1>> norm_;
    const Weights &weights_; // kept alive by the binding
    float eps_;
    Choice choice_;
};

} // namespace

void bind_dense_layer(nb::module_ &m) {
    nb::class_<AttentionHalf>(m, "AttentionHalf")
        .def(nb::init<In<float, 1>, const Weights &, const Weights &, const Weights &, In<float, 1>, In<float, 1>,
                      const Weights &, float>(),
             "norm"_a, "query"_a, "key"_a, "value"_a, "query_norm"_a, "key_norm"_a, "output"_a, "eps"_a,
             nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 8>())
        .def("attend", &AttentionHalf::attend, "pool"_a, "layer"_a, "step"_a);
    nb::class_<ExpertRouter>(m, "ExpertRouter")
        .def(nb::init<In<float, 1>, const Weights &, float, int, bool, float>(), "norm"_a, "weights"_a, "eps"_a, "k"_a,
             "normalise"_a, "scale"_a, nb::keep_alive<1, 3>())
        .def("route", &ExpertRouter::route, "pool"_a, "step"_a, "quantise"_a);
}
