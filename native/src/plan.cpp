// The small arrays around a layer's experts: who computes what, which rows a call needs, where a holder adds them up.
#include <algorithm>
#include <cmath>
#include <vector>

#include "calls.h"

namespace {

constexpr int MAX_ENTRIES_PER_ROW = 31; // so many fit a sum

struct Entry { // of a layer's plan; `at` is its place in ids
    int64_t holder;
    int32_t expert;
    uint32_t at;
    bool operator<(const Entry &other) const {
        if (holder != other.holder) return holder < other.holder;
        return expert != other.expert ? expert < other.expert : at < other.at;
    }
};

std::string in_row(size_t at, size_t k) { return "row " + std::to_string(at / k) + ": "; }

std::vector<Entry> entries_of(In<int32_t, 2> ids, In<float, 2> weights, In<int64_t, 1> owner) {
    const size_t n = ids.size(), k = ids.shape(1), experts = owner.shape(0);
    std::vector<Entry> entries(n);
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids.data()[i];
        if ((uint32_t)id >= experts) // a negative id is a large unsigned one
            refuse(in_row(i, k) + "routed to expert " + std::to_string(id) + ", 0 to " + std::to_string(experts - 1) +
                   " expected");
        if (!std::isfinite(weights.data()[i]))
            refuse(in_row(i, k) + "router weight " + std::to_string(weights.data()[i]) + ", a finite number expected");
        entries[i] = {owner(id), id, (uint32_t)i};
    }
    return entries;
}

// Reading an expert's weights takes as long as this many of its rows (docs/results.md: 1 and 32 rows of Q4_K).
constexpr int64_t READING = 5;
constexpr int64_t MAX_NS = 1'000'000'000'000;

// Who may do others' work, in a table (runners, 4).
struct Runner {
    int64_t serial, team, entry_ns, call_ns, cost = 0;
    bool operator<(int64_t other) const { return serial < other; }
    // When it would be done with `more`, in nanoseconds times what one row of one expert costs.
    int64_t done_with(int64_t more) const { return (READING + 1) * call_ns + (cost + more) * entry_ns; }
    // Whether it has what another one has: it is that one, or of its team.
    bool has_of(const Runner *other) const { return other && (this == other || (team >= 0 && team == other->team)); }
};

struct Work {
    int32_t expert;
    int64_t cost;
    bool operator<(const Work &other) const { return cost != other.cost ? cost > other.cost : expert < other.expert; }
};

std::vector<Runner> runners_of(In<int64_t, 2> table) {
    expect_equal("runners: columns", table.shape(1), 4);
    std::vector<Runner> runners;
    for (size_t i = 0; i < table.shape(0); i++) {
        const int64_t *row = table.data() + 4 * i;
        expect(!i || row[0] > row[-4], "runners: ascending serial numbers expected");
        expect(row[2] > 0 && row[2] <= MAX_NS && row[3] >= 0 && row[3] <= MAX_NS, "runners: a pace is out of range");
        runners.push_back({row[0], row[1], row[2], row[3]});
    }
    return runners;
}

// Shares out anew what more than one has, the most expensive expert first, to whoever would be done with it first.
void balance(std::vector<Entry> &entries, std::vector<Runner> runners, In<int64_t, 1> also, size_t experts) {
    expect(!also.shape(0) || also.shape(0) == experts, "also: one for each expert expected");
    auto find = [&](int64_t serial) {
        auto at = std::lower_bound(runners.begin(), runners.end(), serial);
        return at != runners.end() && at->serial == serial ? &*at : nullptr;
    };
    std::vector<int64_t> rows(experts, 0), holder(experts);
    for (const Entry &e : entries) {
        rows[e.expert]++;
        holder[e.expert] = e.holder;
    }
    auto second = [&](size_t e) { return also.shape(0) ? find(also(e)) : nullptr; };
    std::vector<Work> all;
    for (size_t e = 0; e < experts; e++) {
        Runner *owner = rows[e] ? find(holder[e]) : nullptr;
        if (!owner) continue; // what stays in this process is not theirs
        if (owner->team >= 0 || second(e))
            all.push_back({(int32_t)e, READING + rows[e]});
        else
            owner->cost += READING + rows[e];
    }
    std::sort(all.begin(), all.end());
    for (const Work &work : all) {
        Runner *owner = find(holder[work.expert]), *other = second(work.expert), *best = owner;
        for (Runner &one : runners)
            if ((one.has_of(owner) || one.has_of(other)) && one.done_with(work.cost) < best->done_with(work.cost))
                best = &one;
        best->cost += work.cost;
        holder[work.expert] = best->serial;
    }
    for (Entry &e : entries) e.holder = holder[e.expert];
}

// Int32 and fp32 columns of one length, in one piece of memory.
struct Columns {
    size_t length;
    NewBytes bytes;
    Columns(size_t columns, size_t length) : length(length), bytes(4 * columns * length) {}
    template <class T> T *column(size_t i) { return (T *)bytes.data + i * length; }
    nb::object view(size_t i, DType dtype, size_t from, size_t to) const {
        return array_at(bytes.object, bytes.data + 4 * (i * length + from), dtype, {to - from});
    }
};

// A bitmap of the places from `start` to before `end`.
nb::object places(size_t start, size_t end) {
    const nb::int_ one(1);
    return ((one << nb::int_(end - start)) - one) << nb::int_(start);
}

nb::list plan_entries(nb::type_object part, In<int32_t, 2> ids, In<float, 2> weights, In<int64_t, 1> owner,
                      In<int64_t, 1> also, In<int64_t, 2> runners) {
    expect_equal("weights: rows", weights.shape(0), ids.shape(0));
    expect_equal("weights: columns", weights.shape(1), ids.shape(1));
    std::vector<Entry> entries = entries_of(ids, weights, owner);
    if (runners.shape(0)) balance(entries, runners_of(runners), also, owner.shape(0));
    std::sort(entries.begin(), entries.end());
    const size_t n = entries.size(), k = ids.shape(1);
    Columns columns(3, n);
    int32_t *expert = columns.column<int32_t>(0), *row = columns.column<int32_t>(1);
    float *weight = columns.column<float>(2);
    static const auto *names = new std::vector(interned({"holder", "attempt", "bits", "expert", "row", "weight"}));
    nb::list shares;
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        const Entry &e = entries[i];
        expert[i] = e.expert;
        row[i] = (int32_t)(e.at / k);
        weight[i] = weights.data()[e.at];
        if (i && expert[i] == expert[i - 1] && row[i] == row[i - 1])
            refuse(in_row(e.at, k) + "routed to expert " + std::to_string(e.expert) + " twice, once expected");
        if (i + 1 < n && entries[i + 1].holder == e.holder) continue;
        size_t end = i + 1;
        shares.append(Reader::message(part, *names,
                                      {nb::int_(e.holder), nb::int_(0), places(start, end),
                                       columns.view(0, DType::i4, start, end), columns.view(1, DType::i4, start, end),
                                       columns.view(2, DType::f4, start, end)}));
        start = end;
    }
    return shares;
}

void check_rows(In<int32_t, 1> row, size_t rows) {
    for (size_t i = 0; i < row.shape(0); i++) expect((uint32_t)row(i) < rows, "row: out of range");
}

nb::tuple distinct_rows(In<int32_t, 1> row, size_t rows) {
    check_rows(row, rows);
    std::vector<int32_t> index(rows, -1);
    for (size_t i = 0; i < row.shape(0); i++) index[row(i)] = 0;
    int32_t count = 0;
    for (int32_t &place : index)
        if (place == 0) place = count++;
    NewBytes distinct(4 * (size_t)count), index_of(4 * row.shape(0));
    for (size_t r = 0; r < rows; r++)
        if (index[r] >= 0) ((int32_t *)distinct.data)[index[r]] = (int32_t)r;
    for (size_t i = 0; i < row.shape(0); i++) ((int32_t *)index_of.data)[i] = index[row(i)];
    return nb::make_tuple(array_at(distinct.object, distinct.data, DType::i4, {(size_t)count}),
                          array_at(index_of.object, index_of.data, DType::i4, {row.shape(0)}));
}

nb::tuple assign_slots(In<int32_t, 1> entry_row, In<int32_t, 1> row) {
    Slots slots = slots_of(entry_row, row);
    return nb::make_tuple(array_of(slots.of_entry), array_of(slots.single_row), array_of(slots.sum_row));
}

int32_t first_not_held(In<uint8_t, 2> held, int64_t layer, In<int32_t, 1> expert) {
    expect(layer >= 0 && layer < (int64_t)held.shape(0), "layer: out of range");
    const uint8_t *row = held.data() + layer * held.shape(1);
    for (size_t i = 0; i < expert.shape(0); i++)
        if ((uint32_t)expert(i) >= held.shape(1) || !row[expert(i)]) return expert(i);
    return -1;
}

} // namespace

Slots slots_of(In<int32_t, 1> entry_row, In<int32_t, 1> row) {
    const size_t rows = row.shape(0), n = entry_row.shape(0);
    check_rows(entry_row, rows);
    std::vector<int32_t> count(rows, 0), slot(rows);
    for (size_t i = 0; i < n; i++) count[entry_row(i)]++;
    Slots slots;
    for (size_t r = 0; r < rows; r++) {
        if (count[r] > MAX_ENTRIES_PER_ROW)
            refuse(std::to_string(count[r]) + " experts for one row, " + std::to_string(MAX_ENTRIES_PER_ROW) +
                   " at most expected");
        if (count[r] == 1) {
            slot[r] = (int32_t)slots.single_row.size();
            slots.single_row.push_back(row(r));
        } else if (count[r] > 1) {
            slot[r] = -1 - (int32_t)slots.sum_row.size();
            slots.sum_row.push_back(row(r));
        }
    }
    for (size_t i = 0; i < n; i++) slots.of_entry.push_back(slot[entry_row(i)]);
    return slots;
}

void bind_plan(nb::module_ &m) {
    m.def("plan_entries", &plan_entries, "part"_a, "ids"_a, "weights"_a, "owner"_a, "also"_a, "runners"_a);
    m.def("distinct_rows", &distinct_rows, "row"_a, "rows"_a);
    m.def("assign_slots", &assign_slots, "entry_row"_a, "row"_a);
    m.def("first_not_held", &first_not_held, "held"_a, "layer"_a, "expert"_a);
}
