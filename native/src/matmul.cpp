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
    if (w.quantised())
        rows.quantise(&pool);
    else
        expect(rows.has_values(), "rows: fp32 values expected for weights that are not quantised");
    std::vector<Act> acts;
    for (long r = 0; r < rows.count(); r++) acts.push_back(rows.act(r));
    Inputs inputs(acts.data(), rows.count(), w.columns, w.packed);
    inputs.gather();
    Chunks chunks(w.rows, pool.threads());
    float *to = out.data();
    pool.run(chunks.count, [&](int c) {
        dot_rows(w, matrix, chunks.from(c), chunks.to(c), inputs, [&](long a, int r, const float *v, int count) {
            std::copy(v, v + count, to + (size_t)a * w.rows + r);
        });
    });
}

} // namespace

void bind_matmul(nb::module_ &m) {
    m.def("matmul", &matmul, "pool"_a, "weights"_a, "matrix"_a, "rows"_a, nb::arg("out").noconvert());
}
