// Work on rows that have nothing to do with each other: shared out to a pool's threads where there is enough of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "pool.h"

// body(r) for every row, on any thread; `pool` may be null. `body` must not throw.
template <class Body> void each_row(Pool *pool, long rows, size_t columns, const Body &body) {
    constexpr size_t WORTH_A_TASK = 16384; // values: some microseconds' work, as a wake-up takes
    long tasks = pool ? std::min<long>({rows, 4L * pool->threads(), (long)(rows * columns / WORTH_A_TASK)}) : 1;
    if (tasks <= 1 || pool->threads() == 1) {
        ExactFloats exact_floats;
        for (long r = 0; r < rows; r++) body(r);
        return;
    }
    pool->run((int)tasks, [&](int task) {
        for (long r = rows * task / tasks; r < rows * (task + 1) / tasks; r++) body(r);
    });
}

// The lowest of what any thread found bad.
class LowestBad {
  public:
    void note(long index) {
        long seen = lowest_.load();
        while (index < seen && !lowest_.compare_exchange_weak(seen, index)) {}
    }
    // throws Error{index} if there was any
    template <class Error> void raise() const {
        if (lowest_.load() != NONE) throw Error{lowest_.load()};
    }

  private:
    static constexpr long NONE = INT64_MAX;
    std::atomic<long> lowest_{NONE};
};
