#include "matmul.h"

#include <algorithm>
#include <vector>

#include "pool.h"
#include "rows.h"

namespace {

void matmul(Pool &pool, const Weights &w, long matrix, Rows &rows, Out<float, 2> out) {
    expect(matrix >= 0 && matrix < w.matrices, "matrix: out of range");
    expect_equal("rows: columns", (size_t)rows.columns(), (size_t)w.columns);
    expect_equal("out: rows", out.shape(0), (size_t)rows.count());
    expect_equal("out: columns", out.shape(1), (size_t)w.rows);
    nb::gil_scoped_release release;
    multiply(pool, rows, {{&w, matrix, out.data()}});
}

// A chunk of one product's weight rows.
struct Task {
    const Product *product;
    int from, to;
};

} // namespace

void multiply(Pool &pool, Rows &rows, std::initializer_list<Product> products) {
    bool quantised = false, values = false, packed = false;
    for (const Product &p : products)
        (p.weights->quantised() ? quantised : values) = true, packed = packed || p.weights->packed;
    if (quantised) rows.quantise(&pool);
    if (values) expect(rows.has_values(), "rows: fp32 values expected for weights that are not quantised");
    std::vector<Act> acts(rows.count());
    for (long r = 0; r < rows.count(); r++) acts[r] = rows.act(r);
    Inputs inputs(acts.data(), rows.count(), rows.columns(), packed);
    inputs.gather();
    std::vector<Task> tasks;
    for (const Product &p : products) {
        Chunks chunks(p.weights->rows, pool.threads());
        for (int c = 0; c < chunks.count; c++) tasks.push_back({&p, chunks.from(c), chunks.to(c)});
    }
    pool.run((int)tasks.size(), [&](int number) {
        const auto &[product, from, to] = tasks[number];
        const Weights &w = *product->weights;
        dot_rows(w, product->matrix, from, to, inputs,
                 [width = (size_t)w.rows, out = product->out](long a, int r, const float *v, int count) {
                     std::copy(v, v + count, out + a * width + r);
                 });
    });
}

void bind_matmul(nb::module_ &m) { m.def("matmul", &matmul, "pool"_a, "weights"_a, "matrix"_a, "rows"_a, "out"_a); }
