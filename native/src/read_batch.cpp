#include "read_batch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace reads {

namespace {

constexpr int64_t STEP = 1 << 20;          // by which scratch grows
constexpr int64_t MOST_SCRATCH = 64 << 20; // 8 of the largest requests under way, or 64 of 1 MiB

// A request, and pieces [first, last) that it brings.
struct Request {
    Transfer transfer; // what is left to be read of it
    int64_t from, count;
    size_t first, last;
    bool in_place;
    int64_t needed = 0; // of its bytes, so many must come
    int64_t came = 0;
    int error = 0;
    bool ended = false;
};

struct Plan {
    std::vector<Request> requests;
    std::vector<Piece> pieces;
};

// Each range by requests of its own, straight into its memory.
void add_in_place(Plan &plan, size_t index, const Wanted &wanted, int64_t lead, int64_t tail) {
    const int64_t start = wanted.range.offset - lead, end = wanted.range.end() + tail;
    for (int64_t from = start; from < end; from += MOST) {
        const int64_t to = std::min(from + MOST, end);
        const int64_t begin = std::max(from, wanted.range.offset), stop = std::min(to, wanted.range.end());
        const size_t first = plan.pieces.size();
        plan.pieces.push_back({0, index, begin - from, begin - wanted.range.offset, stop - begin});
        plan.requests.push_back(
            {{wanted.range.descriptor, from, to - from, wanted.to + (from - wanted.range.offset), 0},
             from,
             to - from,
             first,
             first + 1,
             true});
    }
}

void add_windows(Plan &plan, const Windows &windows) {
    size_t piece = 0;
    for (size_t w = 0; w < windows.windows.size(); w++) {
        const Range &window = windows.windows[w];
        const size_t first = piece;
        while (piece < windows.pieces.size() && windows.pieces[piece].window == w) piece++;
        const size_t before = plan.pieces.size();
        plan.pieces.insert(plan.pieces.end(), windows.pieces.begin() + (long)first,
                           windows.pieces.begin() + (long)piece);
        plan.requests.push_back({{window.descriptor, window.offset, window.count, nullptr, 0},
                                 window.offset,
                                 window.count,
                                 before,
                                 plan.pieces.size(),
                                 false});
    }
}

Plan plan_of(const std::vector<Wanted> &wanted, Way way) {
    Plan plan;
    std::vector<Range> others(wanted.size()); // empty where it is read in place
    for (size_t i = 0; i < wanted.size(); i++) {
        const Range &range = wanted[i].range;
        if (range.count == 0) continue;
        const int64_t lead = range.offset - page_start(range.offset), tail = page_end(range.end()) - range.end();
        const bool congruent = (int64_t)((uintptr_t)wanted[i].to % PAGE) == lead;
        if (way == Way::CACHED)
            add_in_place(plan, i, wanted[i], 0, 0);
        else if (congruent && (way == Way::WHOLE_PAGES || (lead == 0 && tail == 0)))
            add_in_place(plan, i, wanted[i], lead, tail);
        else
            others[i] = range;
    }
    add_windows(plan, merge(others));
    for (Request &request : plan.requests)
        for (size_t p = request.first; p < request.last; p++)
            request.needed = std::max(request.needed, plan.pieces[p].in_window + plan.pieces[p].count);
    return plan;
}

// Where in the scratch a request's bytes go: in turns, in the order of requests, and round again.
class Turns {
  public:
    explicit Turns(const std::vector<Request> &requests) : requests_(requests) {
        int64_t all = 0;
        for (const Request &request : requests) all += request.in_place ? 0 : request.count;
        size_ = std::min(all, MOST_SCRATCH);
    }
    int64_t size() const { return size_; }

    // The place of the next request, or -1 until others have ended.
    int64_t place(size_t next) {
        const int64_t count = requests_[next].count;
        while (oldest_ < next && (requests_[oldest_].in_place || requests_[oldest_].ended)) oldest_++;
        const int64_t used_from = oldest_ < next ? places_[oldest_] : -1;
        if (used_from < 0) head_ = 0;
        if (head_ > used_from && size_ - head_ < count) { // it does not fit behind: in front?
            if (used_from < count + 1) return -1;
            head_ = 0;
        } else if (head_ <= used_from && used_from - head_ < count + 1) { // full must not look like empty
            return -1;
        }
        places_.resize(next + 1);
        places_[next] = head_;
        head_ += count;
        return places_[next];
    }
    void reserve() { places_.reserve(requests_.size()); }

  private:
    const std::vector<Request> &requests_;
    std::vector<int64_t> places_;
    int64_t size_, head_ = 0;
    size_t oldest_ = 0;
};

class Batch {
  public:
    Batch(ReadQueue &queue, Scratch &scratch, const std::vector<Wanted> &wanted, Way way)
        : queue_(queue), wanted_(wanted), direct_(way != Way::CACHED), plan_(plan_of(wanted, way)),
          turns_(plan_.requests) {
        turns_.reserve();
        outcome_.each.assign(wanted.size(), CAME);
        if (turns_.size()) scratch_ = scratch.of(turns_.size());
    }

    Outcome run() noexcept {
        const auto begin = std::chrono::steady_clock::now();
        while (true) {
            while (issue_next()) {}
            if (!in_flight_) break;
            Transfer &transfer = queue_.await();
            in_flight_--;
            heard(reinterpret_cast<Request &>(transfer)); // its first member
        }
        for (; next_ < plan_.requests.size(); next_++) finish(plan_.requests[next_], ECANCELED);
        outcome_.us =
            std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
        return std::move(outcome_);
    }

  private:
    bool issue_next() {
        if (stopped_ || next_ == plan_.requests.size() || in_flight_ == queue_.depth()) return false;
        Request &request = plan_.requests[next_];
        if (!request.in_place) {
            const int64_t place = turns_.place(next_);
            if (place < 0) return false;
            request.transfer.to = scratch_ + place;
        }
        next_++;
        issue(request);
        return true;
    }

    void issue(Request &request) {
        outcome_.requests++;
        outcome_.most_in_flight = std::max(outcome_.most_in_flight, ++in_flight_);
        queue_.issue(request.transfer);
    }

    void heard(Request &request) {
        Transfer &transfer = request.transfer;
        if (transfer.result < 0) return finish(request, (int)-transfer.result);
        request.came += transfer.result;
        outcome_.bytes += transfer.result;
        // Past the cache only the end of a file is off a page.
        if (request.came >= request.needed || transfer.result == 0 || (direct_ && request.came % PAGE))
            return finish(request, 0);
        if (stopped_) return finish(request, ECANCELED);
        transfer.to += transfer.result;
        transfer.offset += transfer.result;
        transfer.count -= transfer.result;
        issue(request);
    }

    void finish(Request &request, int error) {
        if (error && error != ECANCELED) stopped_ = true;
        request.ended = true;
        for (size_t p = request.first; p < request.last; p++) {
            const Piece &piece = plan_.pieces[p];
            int &is = outcome_.each[piece.range];
            if (piece.in_window + piece.count > request.came) {
                if (is == CAME || is == ECANCELED) is = error ? error : ENDED;
            } else if (!request.in_place) {
                const uint8_t *start = request.transfer.to - (request.transfer.offset - request.from);
                memcpy(wanted_[piece.range].to + piece.in_range, start + piece.in_window, (size_t)piece.count);
            }
        }
    }

    ReadQueue &queue_;
    const std::vector<Wanted> &wanted_;
    const bool direct_;
    Plan plan_;
    Turns turns_;
    uint8_t *scratch_ = nullptr;
    Outcome outcome_;
    size_t next_ = 0;
    int in_flight_ = 0;
    bool stopped_ = false;
};

} // namespace

Scratch::~Scratch() {
    if (data_) munmap(data_, (size_t)size_);
}

uint8_t *Scratch::of(int64_t size) {
    if (size <= size_) return data_;
    if (data_) munmap(data_, (size_t)size_);
    data_ = nullptr;
    size_ = 0;
    const int64_t rounded = (size + STEP - 1) / STEP * STEP;
    void *found = mmap(nullptr, (size_t)rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    // Of scattered small pages a request takes a segment each, which costs some disks more than the bytes do.
    madvise(found, (size_t)rounded, MADV_HUGEPAGE);
    data_ = (uint8_t *)found;
    size_ = rounded;
    return data_;
}

Outcome read_all(ReadQueue &queue, Scratch &scratch, const std::vector<Wanted> &wanted, Way way) {
    return Batch(queue, scratch, wanted, way).run();
}

} // namespace reads
