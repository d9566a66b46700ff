// RunExperts and Sums as they travel, docs/protocol.md's step messages: checked and laid out, or found and checked.
//
// One header of fixed fields, whose extents say where every array lies; small arrays follow in the same frame, each of
// the large ones has a frame of its own. Whatever does not fit is a ValueError, and nothing is read or made before its
// size is known to be there.
#include <vector>

#include "arrays.h"
#include "calls.h"

namespace {

constexpr uint8_t RUN_EXPERTS = 1, SUMS = 2;
constexpr size_t MAX_ROWS = 512, MAX_ENTRIES_PER_ROW = 31;

// --- what a message knows about itself

struct Call { // the arrays of a RunExperts
    size_t rows, entries;
    const int32_t *row, *expert, *entry_row;
};

void check(const Call &call) {
    for (size_t i = 0; i < call.rows; i++)
        expect(call.row[i] >= 0 && (i == 0 || call.row[i] > call.row[i - 1]), "window rows must ascend from 0 or more");
    for (size_t i = 0; i < call.entries; i++) {
        expect((uint32_t)call.entry_row[i] < call.rows, "an entry's row is none of the call's");
        expect(call.expert[i] >= 0, "experts must be 0 or more");
        expect(i == 0 || call.expert[i] > call.expert[i - 1] ||
                   (call.expert[i] == call.expert[i - 1] && call.entry_row[i] > call.entry_row[i - 1]),
               "entries must ascend by expert, then by row, no pair twice");
    }
}

void check_extents(size_t rows, size_t entries) {
    expect_range("rows", (long)rows, 1, MAX_ROWS);
    expect_range("entries", (long)entries, 1, (long)(rows * MAX_ENTRIES_PER_ROW));
}

void check_numbers(int64_t placement, int64_t step, int64_t layer, int64_t attempt) {
    expect(placement >= 0 && step >= 0 && layer >= 0 && attempt >= 0,
           "placement, step, layer and attempt must be 0 or more");
}

template <class A> Span span(const A &array) { return {array.data(), array.nbytes()}; }

// --- RunExperts

nb::tuple encode_run_experts(nb::str session, int64_t placement, int64_t step, int64_t layer, int64_t attempt,
                             In<int8_t, 2> codes, In<float, 2> scales, In<float, 2> values, In<int32_t, 1> row,
                             In<int32_t, 1> expert, In<int32_t, 1> entry_row, In<float, 1> weight) {
    const size_t rows = row.shape(0), entries = expert.shape(0);
    const bool quantised = codes.shape(0) != 0;
    check_numbers(placement, step, layer, attempt);
    check_extents(rows, entries);
    expect_equal("entry_row: length", entry_row.shape(0), entries);
    expect_equal("entry_weight: length", weight.shape(0), entries);
    expect(quantised ? values.shape(0) == 0 : codes.size() == 0 && scales.size() == 0,
           "one form of activations expected");
    const size_t width = quantised ? codes.shape(1) : values.shape(1);
    expect_equal("activations: rows", quantised ? codes.shape(0) : values.shape(0), rows);
    expect(!quantised || (width % 32 == 0 && scales.shape(0) == rows && scales.shape(1) == width / 32),
           "codes in a multiple of 32 columns, and a scale for each 32 of them, expected");
    check(Call{rows, entries, row.data(), expert.data(), entry_row.data()});
    Writer to(RUN_EXPERTS, {placement, step, layer, attempt}, {rows, entries, width, quantised}, session);
    return to.frame({span(codes), span(scales), span(values), span(row), span(expert), span(entry_row), span(weight)});
}

nb::object decode_run_experts(nb::type_object cls, nb::list frames) {
    Reader from(frames, RUN_EXPERTS, 4, 4);
    const size_t rows = from.extents[0], entries = from.extents[1], width = from.extents[2];
    const bool quantised = from.extents[3] == 1;
    check_numbers(from.numbers[0], from.numbers[1], from.numbers[2], from.numbers[3]);
    check_extents(rows, entries);
    expect(from.extents[3] <= 1 && (!quantised || width % 32 == 0), "no form of activations");
    Array codes = from.take(DType::i1, quantised ? rows : 0, quantised ? width : 0);
    Array scales = from.take(DType::f4, quantised ? rows : 0, quantised ? width / 32 : 0);
    Array values = from.take(DType::f4, quantised ? 0 : rows, quantised ? 0 : width);
    Array row = from.take(DType::i4, rows), expert = from.take(DType::i4, entries);
    Array entry_row = from.take(DType::i4, entries), weight = from.take(DType::f4, entries);
    from.end();
    check(Call{rows, entries, row.as<int32_t>(), expert.as<int32_t>(), entry_row.as<int32_t>()});
    static const auto *names =
        new std::vector(interned({"session", "placement", "step", "layer", "attempt", "codes", "scales", "values",
                                  "row", "entry_expert", "entry_row", "entry_weight"}));
    return Reader::message(cls, *names,
                           {from.text(), nb::int_(from.numbers[0]), nb::int_(from.numbers[1]),
                            nb::int_(from.numbers[2]), nb::int_(from.numbers[3]), from.view(codes), from.view(scales),
                            from.view(values), from.view(row), from.view(expert), from.view(entry_row),
                            from.view(weight)});
}

// --- Sums

nb::tuple encode_sums(nb::str session, int64_t step, int64_t layer, int64_t attempt, In<int32_t, 1> single_row,
                      In<float, 2> single, In<int32_t, 1> sum_row, In<uint8_t, 3> sum48, In<int64_t, 2> sum64,
                      int64_t busy_us, int64_t wait_us) {
    const size_t singles = single_row.shape(0), sums = sum_row.shape(0), wide = sum64.shape(0);
    expect_equal("single: rows", single.shape(0), singles);
    expect(wide + sum48.shape(0) == sums && (wide == 0 || wide == sums), "sums of each row in one form expected");
    expect_equal("sum48: bytes of a sum", sum48.shape(2), 6);
    expect_range("rows", (long)singles, 0, MAX_ROWS);
    expect_range("rows", (long)sums, 0, MAX_ROWS);
    Writer to(SUMS, {step, layer, attempt, busy_us, wait_us},
              {singles, single.shape(1), sums, wide ? sum64.shape(1) : sum48.shape(1), wide ? 8u : 6u}, session);
    return to.frame({span(single_row), span(single), span(sum_row), span(sum48), span(sum64)});
}

nb::object decode_sums(nb::type_object cls, nb::list frames) {
    Reader from(frames, SUMS, 5, 5);
    const size_t singles = from.extents[0], sums = from.extents[2], width = from.extents[3], bytes = from.extents[4];
    expect(singles <= MAX_ROWS && sums <= MAX_ROWS, "more rows than a window has");
    expect(bytes == 6 || (bytes == 8 && sums > 0), "sums have 6 or 8 bytes");
    Array single_row = from.take(DType::i4, singles), single = from.take(DType::f4, singles, from.extents[1]);
    Array sum_row = from.take(DType::i4, sums);
    Array sum48 = from.take(DType::u1, bytes == 6 ? sums : 0, width, 6);
    Array sum64 = from.take(DType::i8, bytes == 8 ? sums : 0, width);
    from.end();
    const auto &n = from.numbers;
    static const auto *names = new std::vector(interned({"session", "step", "layer", "attempt", "single_row", "single",
                                                         "sum_row", "sum48", "sum64", "busy_us", "wait_us"}));
    return Reader::message(cls, *names,
                           {from.text(), nb::int_(n[0]), nb::int_(n[1]), nb::int_(n[2]), from.view(single_row),
                            from.view(single), from.view(sum_row), from.view(sum48), from.view(sum64), nb::int_(n[3]),
                            nb::int_(n[4])});
}

nb::dict bounds() {
    nb::dict all;
    all["MAX_ROWS"] = MAX_ROWS;
    all["MAX_ENTRIES_PER_ROW"] = MAX_ENTRIES_PER_ROW;
    all["MAX_FRAME_BYTES"] = framing::LARGEST_FRAME;
    all["MAX_TEXT_BYTES"] = framing::LARGEST_TEXT;
    all["LARGE_ARRAY_BYTES"] = framing::LARGE;
    all["ALIGNMENT"] = framing::ALIGNMENT;
    all["MAGIC"] = framing::MAGIC;
    return all;
}

} // namespace

void bind_calls(nb::module_ &m) {
    auto exact = [](const char *name) { return nb::arg(name).noconvert(); };
    m.def("encode_run_experts", &encode_run_experts, exact("session"), exact("placement"), exact("step"),
          exact("layer"), exact("attempt"), exact("codes"), exact("scales"), exact("values"), exact("row"),
          exact("entry_expert"), exact("entry_row"), exact("entry_weight"));
    m.def("decode_run_experts", &decode_run_experts, "cls"_a, "frames"_a);
    m.def("encode_sums", &encode_sums, exact("session"), exact("step"), exact("layer"), exact("attempt"),
          exact("single_row"), exact("single"), exact("sum_row"), exact("sum48"), exact("sum64"), exact("busy_us"),
          exact("wait_us"));
    m.def("decode_sums", &decode_sums, "cls"_a, "frames"_a);
    m.def("step_bounds", &bounds);
}
