// The expert feed-forward network: down(silu(gate x) * (up x)), for any set of (expert, row, weight) entries.
#pragma once

#include "arrays.h"

class Pool;
class Rows;
class Weights;

struct Entries { // ascending by expert
    In<int32_t, 1> expert, row;
    In<float, 1> weight;
    const int32_t *slot; // index into the singles, or -1 - index into the sums
};

// Where weighted rows go: written to singles (rows, width), added to sums (rows, width).
struct Totals {
    size_t single_rows, sum_rows;
    float *singles;
    int64_t *sums;
};

// Throws for what does not fit together, and is what must be called before `run_experts`.
void check_experts(const Weights &gate, const Weights &up, const Weights &down, const Rows &rows,
                   const Entries &entries, const Totals &to);

// Without the interpreter. Throws NonFinite for a row, EntryRange for an entry; the totals are then of no use.
void run_experts(Pool &pool, const Weights &gate, const Weights &up, const Weights &down, Rows &rows,
                 const Entries &entries, const Totals &to);
