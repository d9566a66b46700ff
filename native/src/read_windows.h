// Which requests a batch of direct reads becomes: a plan of values, which knows no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reads {

// Past the page cache, offsets, counts and addresses are multiples of this: enough for every usual disk.
constexpr int64_t PAGE = 4096;
// Bytes of a request at most: at this size a disk's cost per request counts for nothing, larger ones are cut up by the
// kernel anyway, and eight of them fit the scratch at once.
constexpr int64_t MOST = 8 << 20;

struct Range {
    int descriptor;
    int64_t offset, count;
    int64_t end() const { return offset + count; }
};

// What a window has of a range.
struct Piece {
    size_t window, range;
    int64_t in_window, in_range, count;
};

struct Windows {
    std::vector<Range> windows;
    std::vector<Piece> pieces; // ascending by window
};

// Ranges widened to pages, ascending by (descriptor, offset), as one where they touch or overlap, cut every MOST bytes.
// A gap is never read. Empty ranges have no pieces. Ends of ranges are at most INT64_MAX - PAGE.
Windows merge(const std::vector<Range> &ranges);

inline int64_t page_start(int64_t offset) { return offset / PAGE * PAGE; }
inline int64_t page_end(int64_t offset) { return page_start(offset + PAGE - 1); }

} // namespace reads
