// The fixed-point combine: entries meet as integers on the 2^-36 grid, so their order cannot matter.
#include <algorithm>

#include "calls.h"
#include "exact.h"
#include "kernels.h"
#include "row_tasks.h"

namespace {

constexpr int64_t LIMIT_48 = 1LL << 47;

nb::object pack48(In<int64_t, 2> values) {
    const size_t n = values.size();
    if (!fits_48(values.data(), n)) return nb::none();
    NewBytes out(6 * n);
    pack_48(values.data(), n, out.data);
    return array_at(out.object, out.data, DType::u1, {values.shape(0), values.shape(1), 6});
}

void add_combined(Out<float, 2> x, Out<int64_t, 2> sums, Pool *pool) {
    expect_equal("sums: rows", sums.shape(0), x.shape(0));
    expect_equal("sums: columns", sums.shape(1), x.shape(1));
    nb::gil_scoped_release release;
    size_t width = x.shape(1);
    each_row(pool, (long)x.shape(0), width, [&, to = x.data(), from = sums.data()](long r) {
        for (size_t i = r * width; i < (r + 1) * width; i++) to[i] = to[i] + exact::from_fixed(from[i]);
        std::fill(from + r * width, from + (r + 1) * width, 0);
    });
}

} // namespace

bool fits_48(const int64_t *sums, size_t count) {
    uint64_t beyond = 0;
    for (size_t i = 0; i < count; i++) beyond |= ((uint64_t)sums[i] + LIMIT_48) >> 48;
    return !beyond;
}

void pack_48(const int64_t *sums, size_t count, char *out) {
    for (size_t i = 0; i + 1 < count; i++) memcpy(out + 6 * i, sums + i, 8); // the next value covers the last two bytes
    if (count) memcpy(out + 6 * (count - 1), sums + count - 1, 6);
}

void bind_combine(nb::module_ &m) {
    m.def("pack48", &pack48, "values"_a);
    m.def("add_combined", &add_combined, "x"_a, "sums"_a, "pool"_a = nb::none());
}
