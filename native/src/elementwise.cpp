// Norms, rotary positions, and the elementwise functions of the bit path.
#include "elementwise.h"

#include "arrays.h"
#include "exact.h"
#include "row_tasks.h"

namespace {

// The same 16 lanes and tree as an unquantised dot, of x with itself.
float sum_of_squares(const float *x, int n) {
    Act act{.values = x};
    float out[TILE_ROWS];
    kernels().f32((const uint8_t *)x, 0, 1, n, &act, 1, out);
    return out[0];
}

void rms_norm(Any<const float> x, In<float, 1> weight, float eps, Any<float> out, Pool *pool) {
    size_t n = weight.shape(0);
    expect(x.ndim() >= 1 && n > 0, "x: one axis or more expected");
    expect_equal("x: last axis", x.shape(x.ndim() - 1), n);
    expect_equal("out: values", out.size(), x.size());
    nb::gil_scoped_release release;
    norm_rows(pool, x.data(), weight.data(), eps, out.data(), (long)(x.size() / n), (int)n);
}

nb::object rope_table(In<int32_t, 1> position, In<double, 1> inverse_frequency, double magnitude) {
    size_t rows = position.shape(0), half = inverse_frequency.shape(0);
    for (size_t r = 0; r < rows; r++) expect(position(r) >= 0, "position: 0 or more expected");
    NewArray<float> cos({rows, half}), sin({rows, half});
    ExactFloats exact_floats;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < half; i++) {
            double angle = (double)position(r) * inverse_frequency(i);
            exact::sine_cosine(angle, magnitude, &sin.data[r * half + i], &cos.data[r * half + i]);
        }
    return nb::make_tuple(cos.object, sin.object);
}

void rope(Out<float, 3> x, In<float, 2> cos, In<float, 2> sin, Pool *pool) {
    size_t rows = x.shape(0), heads = x.shape(1), dim = x.shape(2);
    expect(dim % 2 == 0, "x: head_dim must be even");
    for (const auto *table : {&cos, &sin}) {
        expect_equal("cos and sin: rows", table->shape(0), rows);
        expect_equal("cos and sin: columns", table->shape(1), dim / 2);
    }
    nb::gil_scoped_release release;
    each_row(pool, (long)rows, heads * dim, [&, to = x.data()](long r) {
        turn_heads(to + r * heads * dim, (int)heads, cos.data() + r * dim / 2, sin.data() + r * dim / 2,
                   (int)(dim / 2));
    });
}

void add_arrays(Out<float, 2> x, In<float, 2> y, Pool *pool) {
    expect_equal("y: rows", y.shape(0), x.shape(0));
    expect_equal("y: columns", y.shape(1), x.shape(1));
    nb::gil_scoped_release release;
    add_rows(pool, x.data(), y.data(), (long)x.shape(0), (int)x.shape(1));
}

using Function = void (*)(const float *, float *, int);

nb::object map(Any<const float> x, Function Kernels::*function) {
    float *out = new float[x.size() ? x.size() : 1];
    nb::capsule owner(out, [](void *p) noexcept { delete[] (float *)p; });
    {
        ExactFloats exact_floats;
        (kernels().*function)(x.data(), out, (int)x.size());
    }
    size_t shape[8];
    expect(x.ndim() <= 8, "x: 8 axes at most");
    for (size_t i = 0; i < x.ndim(); i++) shape[i] = x.shape(i);
    return nb::cast(nb::ndarray<nb::numpy, float>(out, x.ndim(), shape, owner));
}

} // namespace

void norm_row(const float *x, const float *weight, float eps, float *out, int n) {
    float mean = sum_of_squares(x, n) / (float)n;
    float scale = 1.0f / exact::root(mean + eps);
    kernels().norm_scale(x, weight, scale, out, n);
}

void norm_rows(Pool *pool, const float *x, const float *weight, float eps, float *out, long rows, int n) {
    each_row(pool, rows, n, [=](long r) { norm_row(x + r * n, weight, eps, out + r * n, n); });
}

void turn_heads(float *x, int heads, const float *cos, const float *sin, int half) {
    for (int h = 0; h < heads; h++) kernels().rotate(x + (size_t)h * 2 * half, cos, sin, half);
}

void add_rows(Pool *pool, float *x, const float *y, long rows, int n) {
    each_row(pool, rows, n, [=](long r) { kernels().add(x + r * n, y + r * n, n); });
}

void bind_elementwise(nb::module_ &m) {
    m.def("rms_norm", &rms_norm, "x"_a, "weight"_a, "eps"_a, "out"_a, "pool"_a = nb::none());
    m.def("rope_table", &rope_table, "position"_a, "inverse_frequency"_a, "magnitude"_a);
    m.def("rope", &rope, "x"_a, "cos"_a, "sin"_a, "pool"_a = nb::none());
    m.def("add_rows", &add_arrays, "x"_a, "y"_a, "pool"_a = nb::none());
    m.def("exponential", [](Any<const float> v) { return map(v, &Kernels::exponential); }, "x"_a);
    m.def("silu", [](Any<const float> v) { return map(v, &Kernels::silu); }, "x"_a);
}
