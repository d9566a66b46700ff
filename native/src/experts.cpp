#include "experts.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "matmul.h"
#include "pool.h"
#include "row_tasks.h"
#include "rows.h"

namespace {

struct Group { // entries [from, to) of one expert
    int expert;
    long from, to;
};

std::vector<Group> group(const In<int32_t, 1> &expert) {
    std::vector<Group> groups;
    for (size_t i = 0; i < expert.shape(0); i++) {
        if (groups.empty() || groups.back().expert != expert(i)) groups.push_back({expert(i), (long)i, (long)i});
        groups.back().to = (long)i + 1;
    }
    return groups;
}

// What the entries of each group bring; copying them is a task of its own if any group has several.
std::vector<Inputs> inputs_of(Pool &pool, const std::vector<Group> &groups, const std::vector<Act> &acts, int columns,
                              bool tiled) {
    std::vector<Inputs> inputs;
    for (const Group &g : groups) inputs.emplace_back(&acts[g.from], g.to - g.from, columns, tiled);
    if (tiled && acts.size() > groups.size()) pool.run((int)groups.size(), [&](int i) { inputs[i].gather(); });
    return inputs;
}

} // namespace

void check_experts(const Weights &gate, const Weights &up, const Weights &down, const Rows &rows, const Entries &e,
                   const Totals &to) {
    expect_equal("gate: columns", (size_t)gate.columns, (size_t)rows.columns());
    expect_equal("up: columns", (size_t)up.columns, (size_t)gate.columns);
    expect_equal("up: rows", (size_t)up.rows, (size_t)gate.rows);
    expect_equal("down: columns", (size_t)down.columns, (size_t)gate.rows);
    expect_equal("up: matrices", (size_t)up.matrices, (size_t)gate.matrices);
    expect_equal("down: matrices", (size_t)down.matrices, (size_t)gate.matrices);
    size_t n = e.expert.shape(0);
    expect_equal("entry_row: length", e.row.shape(0), n);
    expect_equal("entry_weight: length", e.weight.shape(0), n);
    for (size_t i = 0; i < n; i++) {
        expect(e.expert(i) >= 0 && e.expert(i) < gate.matrices, "entry_expert: out of range");
        expect(i == 0 || e.expert(i) >= e.expert(i - 1), "entry_expert: must ascend");
        expect(e.row(i) >= 0 && e.row(i) < rows.count(), "entry_row: out of range");
        int64_t slot = e.slot[i];
        expect(slot >= 0 ? slot < (int64_t)to.single_rows : -1 - slot < (int64_t)to.sum_rows,
               "entry_slot: out of range");
    }
}

void run_experts(Pool &pool, const Weights &gate, const Weights &up, const Weights &down, Rows &rows, const Entries &e,
                 const Totals &to) {
    if (gate.quantised() || up.quantised()) rows.quantise(&pool);
    if (!gate.quantised() || !up.quantised())
        expect(rows.has_values(), "rows: fp32 values expected where gate or up is not quantised");

    const long n = (long)e.expert.shape(0);
    if (n == 0) return;
    const int hidden = gate.rows, width = down.rows;
    std::vector<Group> groups = group(e.expert);
    std::vector<Act> acts;
    for (long i = 0; i < n; i++) acts.push_back(rows.act(e.row(i)));
    std::vector<Inputs> inputs = inputs_of(pool, groups, acts, gate.columns, gate.packed || up.packed);

    // Gate and up of every expert, in chunks of rows; an entry's two dots meet in the same task.
    std::vector<float> middle((size_t)n * hidden);
    auto up_out = std::make_unique_for_overwrite<float[]>((size_t)n * hidden);
    Chunks chunks(hidden, pool.threads(), (int)groups.size());
    pool.run((int)groups.size() * chunks.count, [&](int task) {
        const Group &g = groups[task / chunks.count];
        const Inputs &input = inputs[task / chunks.count];
        int from = chunks.from(task % chunks.count), to = chunks.to(task % chunks.count);
        float *gates = &middle[(size_t)g.from * hidden], *ups = &up_out[(size_t)g.from * hidden];
        dot_rows(gate, g.expert, from, to, input, [&](long a, int r, const float *v, int count) {
            std::copy(v, v + count, gates + (size_t)a * hidden + r);
        });
        dot_rows(up, g.expert, from, to, input, [&](long a, int r, const float *v, int count) {
            std::copy(v, v + count, ups + (size_t)a * hidden + r);
        });
        for (long a = 0; a < g.to - g.from; a++) {
            size_t at = (size_t)a * hidden + from;
            kernels().silu_times(gates + at, ups + at, gates + at, to - from);
        }
    });

    Rows between(std::move(middle), n, hidden);
    if (down.quantised()) {
        try {
            between.quantise(&pool);
        } catch (const NonFinite &bad) {
            throw EntryRange{bad.row};
        }
    }
    for (long i = 0; i < n; i++) acts[i] = between.act(i);
    inputs = inputs_of(pool, groups, acts, down.columns, down.packed);

    // Down rows in chunks; a task walks all experts of its chunk, so no two tasks touch the same output column.
    LowestBad bad;
    Chunks columns(width, pool.threads());
    float *single = to.singles;
    int64_t *sum = to.sums;
    pool.run(columns.count, [&](int task) {
        for (size_t i = 0; i < groups.size(); i++)
            dot_rows(down, groups[i].expert, columns.from(task), columns.to(task), inputs[i],
                     [&, g = groups[i]](long a, int r, const float *v, int count) {
                         long entry = g.from + a;
                         int32_t slot = e.slot[entry];
                         float weighted[ROWS_TOGETHER], *out = slot >= 0 ? &single[(size_t)slot * width + r] : weighted;
                         if (!kernels().weigh(v, e.weight(entry), out, count)) return bad.note(entry);
                         if (slot < 0) kernels().add_fixed(out, &sum[(size_t)(-1 - slot) * width + r], count);
                     });
    });
    bad.raise<EntryRange>();
}

namespace {

void run_given(Pool &pool, const Weights &gate, const Weights &up, const Weights &down, Rows &rows,
               In<int32_t, 1> entry_expert, In<int32_t, 1> entry_row, In<float, 1> entry_weight,
               In<int32_t, 1> entry_slot, Out<float, 2> singles, Out<int64_t, 2> sums) {
    expect_equal("singles: columns", singles.shape(1), (size_t)down.rows);
    expect_equal("sums: columns", sums.shape(1), (size_t)down.rows);
    expect_equal("entry_slot: length", entry_slot.shape(0), entry_expert.shape(0));
    const Entries entries{entry_expert, entry_row, entry_weight, entry_slot.data()};
    const Totals to{singles.shape(0), sums.shape(0), singles.data(), sums.data()};
    check_experts(gate, up, down, rows, entries, to);
    nb::gil_scoped_release release;
    run_experts(pool, gate, up, down, rows, entries, to);
}

} // namespace

void bind_experts(nb::module_ &m) {
    m.def("run_experts", &run_given, "pool"_a, "gate"_a, "up"_a, "down"_a, "rows"_a, "entry_expert"_a, "entry_row"_a,
          "entry_weight"_a, "entry_slot"_a, "singles"_a, "sums"_a);
}
