// A holder's answer: is it the one that was asked for, and if so, added to the layer's sums; or nothing is.
#include <algorithm>
#include <vector>

#include "arrays.h"
#include "exact.h"
#include "kernels.h"
#include "pool.h"

namespace {

constexpr int64_t ENTRY_LIMIT = 1LL << 58; // 2^22 on a grid of 2^-36

using Rows32 = std::vector<int32_t>;

std::string in_words(const int32_t *rows, size_t count) {
    std::string text = "[";
    for (size_t i = 0; i < count && i < 8; i++) text += (i ? ", " : "") + std::to_string(rows[i]);
    return text + "]";
}

void check_rows(const char *form, In<int32_t, 1> found, const Rows32 &expected) {
    if (found.shape(0) == expected.size() && std::equal(expected.begin(), expected.end(), found.data())) return;
    refuse("rows " + in_words(found.data(), found.shape(0)) + " come as " + form + ", " +
           in_words(expected.data(), expected.size()) + " expected");
}

void check_columns(const char *form, size_t found, size_t expected) {
    if (found != expected) [[unlikely]]
        refuse(std::string(form) + " has " + std::to_string(found) + " columns, " + std::to_string(expected) +
               " expected");
}

void check_singles(In<float, 2> single) {
    const size_t width = single.shape(1);
    for (size_t i = 0; i < single.size(); i++)
        if (!exact::in_entry_range(single.data()[i])) [[unlikely]]
            refuse("a weighted row is not finite or too large: row " + std::to_string(i / width));
}

void check_sums(In<int64_t, 2> sum64, const Rows32 &sum_row, const Rows32 &entries) {
    const size_t width = sum64.shape(1);
    for (size_t i = 0; i < sum64.shape(0); i++) {
        const int64_t limit = entries[sum_row[i]] * ENTRY_LIMIT, *sums = sum64.data() + i * width;
        bool fits = true;
        for (size_t c = 0; c < width; c++) fits &= sums[c] < limit && sums[c] > -limit;
        expect(fits, "a sum is larger than its entries can make it");
    }
}

// Wraps instead of overflowing: a total beyond int64 cannot come from entries in range.
void add(int64_t &sum, int64_t value) { sum = (int64_t)((uint64_t)sum + (uint64_t)value); }

void add_packed(int64_t *sums, const uint8_t *packed, size_t width) {
    for (size_t c = 0; c + 1 < width; c++) {
        uint64_t low; // the last two of its bytes are the next value's
        memcpy(&low, packed + 6 * c, 8);
        add(sums[c], (int64_t)(low << 16) >> 16); // sign from bit 47
    }
    if (width) {
        uint64_t low = 0;
        memcpy(&low, packed + 6 * (width - 1), 6);
        add(sums[width - 1], (int64_t)(low << 16) >> 16);
    }
}

void add_answer(Out<int64_t, 2> sums, In<int32_t, 1> entry_row, In<int32_t, 1> single_row, In<float, 2> single,
                In<int32_t, 1> sum_row, In<uint8_t, 3> sum48, In<int64_t, 2> sum64) {
    const size_t rows = sums.shape(0), width = sums.shape(1);
    Rows32 entries(rows, 0), once, more;
    for (size_t i = 0; i < entry_row.shape(0); i++) {
        expect((uint32_t)entry_row(i) < rows, "entry_row: out of range");
        entries[entry_row(i)]++;
    }
    for (size_t r = 0; r < rows; r++)
        if (entries[r]) (entries[r] == 1 ? once : more).push_back((int32_t)r);
    expect(more.empty() || *std::max_element(entries.begin(), entries.end()) <= 31, "entry_row: 31 of a row at most");
    check_rows("single", single_row, once);
    check_rows("sum", sum_row, more);
    const bool packed = sum64.shape(0) == 0;
    expect(single.shape(0) == once.size() && (packed ? sum48.shape(0) : sum64.shape(0)) == more.size(),
           "as many rows of values as of numbers expected");
    if (!once.empty()) check_columns("single", single.shape(1), width);
    if (!more.empty()) {
        check_columns(packed ? "sum48" : "sum64", packed ? sum48.shape(1) : sum64.shape(1), width);
        expect(!packed || sum48.shape(2) == 6, "sum48: 6 bytes a sum expected");
    }
    nb::gil_scoped_release release;
    ExactFloats exact_floats;
    check_singles(single);
    check_sums(sum64, more, entries); // 48 bits cannot hold too large a sum
    for (size_t i = 0; i < once.size(); i++)
        for (size_t c = 0; c < width; c++)
            add(sums.data()[once[i] * width + c], exact::to_fixed(single.data()[i * width + c]));
    for (size_t i = 0; i < more.size(); i++) {
        int64_t *to = sums.data() + more[i] * width;
        if (packed)
            add_packed(to, sum48.data() + i * width * 6, width);
        else
            for (size_t c = 0; c < width; c++) add(to[c], sum64.data()[i * width + c]);
    }
}

} // namespace

void bind_answers(nb::module_ &m) {
    m.def("add_answer", &add_answer, "sums"_a, "entry_row"_a, "single_row"_a, "single"_a, "sum_row"_a, "sum48"_a,
          "sum64"_a);
}
