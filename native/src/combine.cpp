// The fixed-point combine: entries meet as integers on the 2^-36 grid, so their order cannot matter.
#include <algorithm>

#include "calls.h"
#include "exact.h"
#include "kernels.h"
#include "row_tasks.h"

namespace {

constexpr int64_t LARGEST_SUM = 31LL << 58; // 31 entries, each below 2^22
constexpr int64_t LIMIT_48 = 1LL << 47;

void check_rows(In<int32_t, 1> row, size_t values, size_t width, const Out<int64_t, 2> &sums) {
    expect_equal("row: length", row.shape(0), values);
    expect_equal("values: columns", width, sums.shape(1));
    for (size_t i = 0; i < row.shape(0); i++)
        expect(row(i) >= 0 && row(i) < (int64_t)sums.shape(0), "row: out of range");
}

// Wraps instead of overflowing: a total beyond int64 cannot come from entries in range.
void add(int64_t &sum, int64_t value) { sum = (int64_t)((uint64_t)sum + (uint64_t)value); }

void add_weighted(Out<int64_t, 2> sums, In<int32_t, 1> row, In<float, 2> values) {
    check_rows(row, values.shape(0), values.shape(1), sums);
    nb::gil_scoped_release release;
    ExactFloats exact_floats;
    size_t width = values.shape(1);
    for (size_t i = 0; i < values.size(); i++)
        if (!exact::in_entry_range(values.data()[i])) throw EntryRange{(long)(i / width)};
    for (size_t i = 0; i < values.shape(0); i++)
        kernels().add_fixed(values.data() + i * width, sums.data() + (size_t)row(i) * width, (int)width);
}

void add_sums(Out<int64_t, 2> sums, In<int32_t, 1> row, In<int64_t, 2> values) {
    check_rows(row, values.shape(0), values.shape(1), sums);
    nb::gil_scoped_release release;
    size_t width = values.shape(1);
    for (size_t i = 0; i < values.size(); i++)
        if (values.data()[i] > LARGEST_SUM || values.data()[i] < -LARGEST_SUM) throw EntryRange{(long)(i / width)};
    for (size_t i = 0; i < values.shape(0); i++)
        for (size_t c = 0; c < width; c++) add(sums.data()[(size_t)row(i) * width + c], values.data()[i * width + c]);
}

nb::object pack48(In<int64_t, 2> values) {
    const size_t n = values.size();
    if (!fits_48(values.data(), n)) return nb::none();
    NewBytes out(6 * n);
    pack_48(values.data(), n, out.data);
    return array_at(out.object, out.data, DType::u1, {values.shape(0), values.shape(1), 6});
}

nb::object unpack48(In<uint8_t, 3> packed) {
    expect_equal("packed: bytes per value", packed.shape(2), 6);
    const size_t n = packed.shape(0) * packed.shape(1);
    NewArray<int64_t> out({packed.shape(0), packed.shape(1)});
    for (size_t i = 0; i < n; i++) {
        uint64_t low = 0;
        memcpy(&low, packed.data() + 6 * i, i + 1 < n ? 8 : 6);
        out.data[i] = (int64_t)(low << 16) >> 16; // sign from bit 47
    }
    return out.object;
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
    auto sums = nb::arg("sums").noconvert();
    m.def("add_weighted", &add_weighted, sums, nb::arg("row").noconvert(), nb::arg("values").noconvert());
    m.def("add_sums", &add_sums, sums, nb::arg("row").noconvert(), nb::arg("values").noconvert());
    m.def("pack48", &pack48, nb::arg("values").noconvert());
    m.def("unpack48", &unpack48, nb::arg("packed").noconvert());
    m.def("add_combined", &add_combined, nb::arg("x").noconvert(), sums, "pool"_a = nb::none());
}
