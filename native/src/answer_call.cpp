// A RunExperts in, a Sums out: all that lies between the two at a holder that computes on the processor.
#include <chrono>

#include "calls.h"
#include "experts.h"
#include "pool.h"
#include "rows.h"
#include "weights.h"

namespace {

using Clock = std::chrono::steady_clock;

// The fields of a RunExperts, by name.
class Fields {
  public:
    explicit Fields(nb::handle message) : message_(message) {}
    nb::object object(const char *name) const { return nb::steal(get(name)); }
    template <class T, int N> In<T, N> array(const char *name) const {
        nb::object value = object(name); // the message goes on holding it
        In<T, N> array;
        if (!array.find(value)) throw nb::type_error(name);
        return array;
    }

  private:
    PyObject *get(const char *name) const {
        PyObject *value = PyObject_GetAttrString(message_.ptr(), name);
        if (!value) throw nb::python_error();
        return value;
    }
    nb::handle message_;
};

Rows rows_of(const Fields &work, bool quantised) {
    if (!quantised) {
        In<float, 2> values = work.array<float, 2>("values");
        return Rows(values.data(), (long)values.shape(0), (int)values.shape(1));
    }
    In<int8_t, 2> codes = work.array<int8_t, 2>("codes");
    In<float, 2> scales = work.array<float, 2>("scales");
    expect_equal("scales: rows", scales.shape(0), codes.shape(0));
    expect_equal("scales: columns", scales.shape(1), codes.shape(1) / 32);
    return Rows(codes.data(), scales.data(), (long)codes.shape(0), (int)codes.shape(1));
}

// Sums as they travel: in 48 bits if all fit, else in 64; the other form has no rows.
struct Packed {
    nb::object sum48, sum64;
    Packed(const std::vector<int64_t> &sums, size_t rows, size_t width) {
        const bool fits = fits_48(sums.data(), sums.size());
        NewBytes narrow(fits ? 6 * sums.size() : 0), wide(fits ? 0 : 8 * sums.size());
        if (fits)
            pack_48(sums.data(), sums.size(), narrow.data);
        else
            memcpy(wide.data, sums.data(), 8 * sums.size());
        sum48 = array_at(narrow.object, narrow.data, DType::u1, {fits ? rows : 0, width, 6});
        sum64 = array_at(wide.object, wide.data, DType::i8, {fits ? 0 : rows, width});
    }
};

nb::object answer_call(nb::type_object sums_class, nb::handle work, Pool &pool, const Weights &gate, const Weights &up,
                       const Weights &down, int64_t wait_us) {
    const Fields fields(work);
    Entries entries{fields.array<int32_t, 1>("entry_expert"), fields.array<int32_t, 1>("entry_row"),
                    fields.array<float, 1>("entry_weight"), nullptr};
    Rows rows = rows_of(fields, gate.quantised() && up.quantised());
    Slots slots = slots_of(entries.row, fields.array<int32_t, 1>("row"));
    entries.slot = slots.of_entry.data();
    const size_t width = (size_t)down.rows, singles = slots.single_row.size(), several = slots.sum_row.size();
    NewBytes single(4 * singles * width);
    std::vector<int64_t> sums(several * width);
    const Totals totals{singles, several, (float *)single.data, sums.data()};
    check_experts(gate, up, down, rows, entries, totals);
    int64_t busy_us;
    {
        nb::gil_scoped_release release;
        const Clock::time_point began = Clock::now();
        run_experts(pool, gate, up, down, rows, entries, totals);
        busy_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began).count();
    }
    const Packed packed(sums, several, width);
    static const auto *names = new std::vector(interned({"session", "step", "layer", "attempt", "single_row", "single",
                                                         "sum_row", "sum48", "sum64", "busy_us", "wait_us"}));
    return Reader::message(sums_class, *names,
                           {fields.object("session"), fields.object("step"), fields.object("layer"),
                            fields.object("attempt"), array_of(slots.single_row),
                            array_at(single.object, single.data, DType::f4, {singles, width}), array_of(slots.sum_row),
                            packed.sum48, packed.sum64, nb::int_(busy_us), nb::int_(wait_us)});
}

} // namespace

void bind_answer_call(nb::module_ &m) {
    m.def("answer_call", &answer_call, "sums"_a, "work"_a, "pool"_a, "gate"_a, "up"_a, "down"_a, "wait_us"_a);
}
