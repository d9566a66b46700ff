// Threads that run one batch of numbered tasks at a time, the caller among them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

class Pool {
  public:
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool &) = delete;

    int threads() const { return threads_; }

    // Calls body(task) for 0 <= task < tasks, each once, on any thread; returns when all are done. `body` must not
    // throw.
    template <class Body> void run(int tasks, const Body &body) {
        run_batch(tasks, [](const void *b, int task) { (*static_cast<const Body *>(b))(task); }, &body);
    }

  private:
    using Call = void (*)(const void *, int);
    void run_batch(int tasks, Call call, const void *body);
    bool run_one();
    void work();
    void end_workers();

    const int threads_;
    std::mutex one_batch_;
    // Number of tasks (high half) and next task (low half) in one word: a claim can never mix two batches, and a thread
    // that wakes late simply helps with whatever batch is current.
    std::atomic<uint64_t> claim_{0};
    std::atomic<Call> call_{nullptr};
    std::atomic<const void *> body_{nullptr};
    std::atomic<int> left_{0};
    std::atomic<uint32_t> batch_{0};
    std::atomic<int> asleep_{0};
    std::atomic<bool> closing_{false};
    std::vector<std::thread> workers_;
};

// Rounding to nearest, no flushing of subnormals, whatever the process has set; restored at the end of the scope.
class ExactFloats {
  public:
    ExactFloats();
    ~ExactFloats();

  private:
    uint64_t saved_;
};
