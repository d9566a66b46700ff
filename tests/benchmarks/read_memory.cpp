// Reads memory as fast as the processor can on several threads at once, and does nothing else with it: the limit of
// whoever reads weights. Compiled by read_bandwidth.py when it is used.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

namespace {

typedef unsigned long long Line __attribute__((vector_size(64))); // as many registers as the machine needs for it
constexpr size_t STEP = 256;                                      // bytes that one stream gives before the next one

std::atomic<unsigned long long> sink; // so that no load can be left out

// `count` bytes from `data` on, as `streams` walks side by side, each prefetching `ahead` bytes (0: none).
template <int STREAMS> void read(const char *data, size_t count, size_t ahead) {
    const size_t each = count / STREAMS / STEP * STEP;
    Line sums[4] = {};
    for (size_t at = 0; at < each; at += STEP)
        for (int stream = 0; stream < STREAMS; stream++) {
            const char *from = data + stream * each + at;
            if (ahead)
                for (size_t line = 0; line < STEP; line += 64) __builtin_prefetch(from + ahead + line);
            for (int i = 0; i < 4; i++) {
                Line line;
                std::memcpy(&line, from + i * sizeof line, sizeof line);
                sums[i] ^= line;
            }
        }
    Line all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
    sink.fetch_xor(all[0] ^ all[1] ^ all[2] ^ all[3] ^ all[4] ^ all[5] ^ all[6] ^ all[7]);
}

} // namespace

// Seconds for one pass over `bytes` bytes, a part for each thread; `streams` is 1, 4 or 8.
extern "C" double read_seconds(const char *data, size_t bytes, int threads, int streams, size_t ahead) {
    const size_t part = bytes / threads / STEP * STEP;
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> started;
    for (int i = 0; i < threads; i++)
        started.emplace_back([&, i] {
            ready++;
            while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
            const char *from = data + i * part;
            streams == 8   ? read<8>(from, part, ahead)
            : streams == 4 ? read<4>(from, part, ahead)
                           : read<1>(from, part, ahead);
        });
    while (ready.load() < threads) std::this_thread::yield();
    const auto began = std::chrono::steady_clock::now();
    go.store(true, std::memory_order_release);
    for (std::thread &each : started) each.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}
