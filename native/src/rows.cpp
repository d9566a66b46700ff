#include "rows.h"

#include <algorithm>
#include <utility>

#include "arrays.h"
#include "exact.h"
#include "row_tasks.h"

namespace {
constexpr size_t SLACK = 256; // vector loads of a short last block may read past its end
}

Rows::Rows(const float *values, long count, int columns)
    : Rows(std::vector<float>(values, values + count * (size_t)columns), count, columns) {}

Rows::Rows(std::vector<float> values, long count, int columns)
    : count_(count), columns_(columns), own_values_(std::move(values)) {
    values_ = own_values_.data();
}

Rows::Rows(Lent values, long count, int columns) : count_(count), columns_(columns), values_(values.values) {}

void Rows::keep_values() {
    own_values_.assign(values_, values_ + (size_t)count_ * columns_);
    values_ = own_values_.data();
}

Rows::Rows(const int8_t *codes, const float *scales, long count, int columns) : count_(count), columns_(columns) {
    expect(columns % 32 == 0, "codes: columns must be a multiple of 32");
    reserve_codes();
    size_t n = (size_t)count * columns;
    int8_t lowest = 0;
    for (size_t i = 0; i < n; i++) lowest = codes[i] < lowest ? codes[i] : lowest;
    expect(lowest != -128, "codes: -128 is not an activation");
    uint32_t largest = 0; // of the bit patterns: a negative scale is larger than any
    for (size_t i = 0; i < n / 32; i++) largest = std::max(largest, exact::bits_of(scales[i]));
    expect(largest < 0x7f800000u, "scales: finite and 0 or more expected");
    std::copy(codes, codes + n, codes_.begin());
    std::copy(scales, scales + n / 32, scales_.begin());
    for (size_t h = 0; h < n / 16; h++) {
        int sum = 0;
        for (int i = 0; i < 16; i++) sum += codes[16 * h + i];
        sums16_[h] = (int16_t)sum;
    }
    add_up_sums();
    quantised_ = true;
}

void Rows::reserve_codes() {
    size_t n = (size_t)count_ * columns_;
    codes_.resize(n + SLACK);
    scales_.resize(n / 32 + SLACK);
    sums16_.resize(n / 16 + SLACK);
    sums_.resize(n / 32);
}

void Rows::add_up_sums() {
    for (size_t s = 0; s < sums_.size(); s++) sums_[s] = (float)(sums16_[2 * s] + sums16_[2 * s + 1]);
}

void Rows::quantise(Pool *pool) {
    std::lock_guard<std::mutex> lock(quantising_);
    if (quantised_) return;
    expect(can_quantise(), "rows: columns must be a multiple of 32 to be quantised");
    reserve_codes();
    LowestBad bad;
    each_row(pool, count_, (size_t)columns_, [&](long r) {
        size_t at = (size_t)r * columns_;
        if (!kernels().quantise(&values_[at], columns_, &codes_[at], &scales_[at / 32], &sums16_[at / 16])) bad.note(r);
    });
    bad.raise<NonFinite>();
    add_up_sums();
    quantised_ = true;
}

Act Rows::act(long row) const {
    size_t at = (size_t)row * columns_;
    const float *values = values_ ? values_ + at : nullptr;
    if (!quantised_) return Act{.values = values};
    return Act{&codes_[at], &scales_[at / 32], &sums16_[at / 16], &sums_[at / 32], values};
}

void bind_rows(nb::module_ &m) {
    nb::class_<Rows>(m, "Rows")
        .def(
            "__init__",
            [](Rows *self, In<float, 2> values) {
                new (self) Rows(values.data(), (long)values.shape(0), (int)values.shape(1));
            },
            "values"_a)
        .def_static(
            "quantised",
            [](In<int8_t, 2> codes, In<float, 2> scales) {
                expect_equal("scales: rows", scales.shape(0), codes.shape(0));
                expect_equal("scales: columns", scales.shape(1), codes.shape(1) / 32);
                return new Rows(codes.data(), scales.data(), (long)codes.shape(0), (int)codes.shape(1));
            },
            "codes"_a, "scales"_a)
        .def_prop_ro("count", &Rows::count)
        .def_prop_ro("columns", &Rows::columns)
        .def("values",
             [](nb::handle self) {
                 Rows &rows = nb::cast<Rows &>(self);
                 expect(rows.has_values(), "rows: made from codes, they hold no fp32 values");
                 size_t n = (size_t)rows.count(), c = (size_t)rows.columns();
                 return nb::ndarray<nb::numpy, const float>(rows.values(), {n, c}, self);
             })
        .def(
            "quantise",
            [](nb::handle self, Pool *pool) {
                Rows &rows = nb::cast<Rows &>(self);
                {
                    nb::gil_scoped_release release;
                    rows.quantise(pool);
                }
                size_t n = (size_t)rows.count(), c = (size_t)rows.columns();
                nb::ndarray<nb::numpy, const int8_t> codes(rows.codes(), {n, c}, self);
                nb::ndarray<nb::numpy, const float> scales(rows.scales(), {n, c / 32}, self);
                return nb::make_tuple(codes, scales);
            },
            "pool"_a = nb::none());
}
