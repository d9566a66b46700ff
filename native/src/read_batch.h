// One batch of ranges through a queue: requests, scratch memory, and what became of each range.
#pragma once

#include <vector>

#include "read_queue.h"
#include "read_windows.h"

namespace reads {

// A range, and the memory that is to have its bytes.
struct Wanted {
    Range range;
    uint8_t *to;
};

enum class Way {
    CACHED,      // through the page cache
    DIRECT,      // past it, in whole pages
    WHOLE_PAGES, // the same; and whole pages around the memory are there to be written
};

constexpr int CAME = 0, ENDED = -1; // what became of a range, if it is no errno: came whole; the file ends before

struct Outcome {
    std::vector<int> each; // of each range
    int64_t bytes = 0;     // that the kernel gave, those around what was wanted included
    int requests = 0, most_in_flight = 0;
    int64_t us = 0;
};

// Aligned memory that is kept from one batch to the next.
class Scratch {
  public:
    ~Scratch();
    // So many bytes at least. Throws std::bad_alloc.
    uint8_t *of(int64_t size);

  private:
    uint8_t *data_ = nullptr;
    int64_t size_ = 0;
};

// Throws only before the first request. After an error no request is issued, and those under way are awaited.
Outcome read_all(ReadQueue &queue, Scratch &scratch, const std::vector<Wanted> &wanted, Way way);

} // namespace reads
