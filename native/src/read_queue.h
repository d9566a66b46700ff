// Reads under way, several at a time: by the kernel's own queue, or by threads that wait for one each.
#pragma once

#include <cstdint>
#include <memory>

namespace reads {

struct Transfer {
    int descriptor;
    int64_t offset, count;
    uint8_t *to;
    int64_t result; // bytes that came, or an errno below zero
};

// Of one thread at a time. There is no deadline: the kernel writes into the memory until it says that it is done.
class ReadQueue {
  public:
    virtual ~ReadQueue() = default;
    virtual const char *kind() const = 0;
    // How many transfers may be under way.
    virtual int depth() const = 0;
    // Begins one, at the latest with the next `await`. It stays where it is until `await` gives it back.
    virtual void issue(Transfer &transfer) noexcept = 0;
    // Waits until one of those under way has ended.
    virtual Transfer &await() noexcept = 0;
};

// Null where the kernel is too old (Linux 5.6 is the first that will do), or was told to refuse.
std::unique_ptr<ReadQueue> io_uring_queue(int depth);
// Throws std::system_error if so many threads cannot be had.
std::unique_ptr<ReadQueue> thread_queue(int threads);

// One read, for as long as it takes: bytes that came, or an errno below zero.
int64_t read_at(const Transfer &transfer) noexcept;

} // namespace reads
