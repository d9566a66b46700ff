// Pages of mapped files: whether memory has them, and asking for them, many ranges in one call.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include "arrays.h"

namespace {

using I4 = In<int32_t, 1>;
using I8 = In<int64_t, 1>;
using U8 = In<uint64_t, 1>;

constexpr long CACHESTAT = 451; // on every architecture; Linux 6.5 is the first to have it
// One request for pages reads one read-ahead window at most and forgets the rest. This is the default window.
constexpr uint64_t STEP = 128 << 10;
constexpr int POPULATE_READ = 22;   // MADV_POPULATE_READ, which older headers lack; Linux 5.14 is the first to have it
constexpr size_t PAGES_A_CALL = 64; // where it lacks

const uint64_t PAGE = (uint64_t)sysconf(_SC_PAGESIZE);

struct CacheRange {
    uint64_t offset, count;
};
struct CacheCounts {
    uint64_t cached, dirty, being_written, evicted, recently_evicted;
};

bool is_cached(int descriptor, uint64_t offset, uint64_t count) {
    const CacheRange range{offset, count};
    CacheCounts found{};
    if (count == 0 || syscall(CACHESTAT, descriptor, &range, &found, 0)) return false;
    return found.cached >= (offset % PAGE + count + PAGE - 1) / PAGE;
}

nb::object resident(I4 descriptors, I8 offsets, I8 counts) {
    const size_t n = descriptors.shape(0);
    expect_equal("offsets", offsets.shape(0), n);
    expect_equal("counts", counts.shape(0), n);
    NewArray<uint8_t> there({n});
    {
        nb::gil_scoped_release release;
        for (size_t i = 0; i < n; i++)
            there.data[i] = is_cached(descriptors(i), (uint64_t)offsets(i), (uint64_t)counts(i));
    }
    return there.object;
}

struct Pages {
    uint64_t start, end;
};

std::vector<Pages> pages_of(const U8 &addresses, const I8 &counts) {
    expect_equal("counts", counts.shape(0), addresses.shape(0));
    std::vector<Pages> all;
    for (size_t i = 0; i < addresses.shape(0); i++) {
        expect(counts(i) >= 0 && addresses(i) <= UINT64_MAX - PAGE - (uint64_t)counts(i), "counts: out of range");
        if (counts(i) == 0) continue;
        all.push_back({addresses(i) / PAGE * PAGE, (addresses(i) + (uint64_t)counts(i) + PAGE - 1) / PAGE * PAGE});
    }
    return all;
}

bool has_arrived(const Pages &pages) {
    unsigned char there[PAGES_A_CALL];
    for (uint64_t at = pages.start; at < pages.end; at += PAGES_A_CALL * PAGE) {
        const size_t n = std::min<size_t>(PAGES_A_CALL, (pages.end - at) / PAGE);
        if (mincore((void *)at, n * PAGE, there)) return false;
        if (!std::all_of(there, there + n, [](unsigned char page) { return page & 1; })) return false;
    }
    return true;
}

nb::object arrived(U8 addresses, I8 counts) {
    const std::vector<Pages> all = pages_of(addresses, counts);
    expect_equal("counts: above 0", all.size(), counts.shape(0));
    NewArray<uint8_t> there({all.size()});
    {
        nb::gil_scoped_release release;
        for (size_t i = 0; i < all.size(); i++) there.data[i] = has_arrived(all[i]);
    }
    return there.object;
}

void ask_for(const std::vector<Pages> &all) {
    for (const Pages &pages : all)
        for (uint64_t at = pages.start; at < pages.end; at += STEP)
            madvise((void *)at, std::min(STEP, pages.end - at), MADV_WILLNEED); // advice: whether it is taken is open
}

// Reads a byte of each page by a system call, to which a page that is gone is an error and no signal.
void touch(const Pages &pages) {
    uint8_t bytes[PAGES_A_CALL];
    for (uint64_t at = pages.start; at < pages.end; at += PAGES_A_CALL * PAGE) {
        iovec there[PAGES_A_CALL], here{bytes, PAGES_A_CALL};
        const size_t n = std::min<size_t>(PAGES_A_CALL, (pages.end - at) / PAGE);
        for (size_t i = 0; i < n; i++) there[i] = {(void *)(at + i * PAGE), 1};
        here.iov_len = n;
        if (process_vm_readv(getpid(), &here, 1, there, n, 0) < 0) return;
    }
}

// Whoever computes with a page that is gone finds out.
void fault_in(const Pages &pages) {
    if (madvise((void *)pages.start, pages.end - pages.start, POPULATE_READ) && errno == EINVAL) touch(pages);
}

void will_need(U8 addresses, I8 counts) {
    const std::vector<Pages> all = pages_of(addresses, counts);
    nb::gil_scoped_release release;
    ask_for(all);
}

int64_t populate(U8 addresses, I8 counts, int threads) {
    expect_range("threads", threads, 1, 256);
    const std::vector<Pages> all = pages_of(addresses, counts);
    nb::gil_scoped_release release;
    const auto begin = std::chrono::steady_clock::now();
    ask_for(all);
    std::atomic<size_t> next{0};
    auto work = [&] {
        for (size_t i = next++; i < all.size(); i = next++) fault_in(all[i]);
    };
    std::vector<std::thread> others;
    try {
        while (others.size() + 1 < std::min((size_t)threads, all.size())) others.emplace_back(work);
    } catch (const std::system_error &) {
        // So many there are; this one does what is left.
    }
    work();
    for (std::thread &thread : others) thread.join();
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace

void bind_pages(nb::module_ &m) {
    m.def("resident", &resident, "descriptors"_a, "offsets"_a, "counts"_a);
    m.def("arrived", &arrived, "addresses"_a, "counts"_a);
    m.def("will_need", &will_need, "addresses"_a, "counts"_a);
    m.def("populate", &populate, "addresses"_a, "counts"_a, "threads"_a);
}
