#include "read_windows.h"

#include <algorithm>
#include <tuple>

namespace reads {

namespace {

std::vector<size_t> in_order(const std::vector<Range> &ranges) {
    std::vector<size_t> order;
    for (size_t i = 0; i < ranges.size(); i++)
        if (ranges[i].count > 0) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return std::tuple(ranges[a].descriptor, ranges[a].offset, a) <
               std::tuple(ranges[b].descriptor, ranges[b].offset, b);
    });
    return order;
}

// Stretches of whole pages of which each has a byte of a range.
std::vector<Range> stretches_of(const std::vector<Range> &ranges, const std::vector<size_t> &order) {
    std::vector<Range> stretches;
    for (size_t i : order) {
        const Range &range = ranges[i];
        const int64_t start = page_start(range.offset), end = page_end(range.end());
        if (stretches.empty() || stretches.back().descriptor != range.descriptor || stretches.back().end() < start)
            stretches.push_back({range.descriptor, start, 0});
        Range &last = stretches.back();
        last.count = std::max(last.end(), end) - last.offset;
    }
    return stretches;
}

} // namespace

Windows merge(const std::vector<Range> &ranges) {
    const std::vector<size_t> order = in_order(ranges);
    Windows plan;
    for (const Range &stretch : stretches_of(ranges, order))
        for (int64_t from = stretch.offset; from < stretch.end(); from += MOST)
            plan.windows.push_back({stretch.descriptor, from, std::min(MOST, stretch.end() - from)});
    size_t first = 0; // the window in which the range begins: every range's is there, and they ascend together
    for (size_t i : order) {
        const Range &range = ranges[i];
        auto is_before = [&](const Range &w) { return w.descriptor != range.descriptor || w.end() <= range.offset; };
        while (is_before(plan.windows[first])) first++;
        int64_t at = range.offset;
        for (size_t w = first; at < range.end(); w++) {
            const int64_t count = std::min(range.end(), plan.windows[w].end()) - at;
            plan.pieces.push_back({w, i, at - plan.windows[w].offset, at - range.offset, count});
            at += count;
        }
    }
    std::stable_sort(plan.pieces.begin(), plan.pieces.end(),
                     [](const Piece &a, const Piece &b) { return a.window < b.window; });
    return plan;
}

} // namespace reads
