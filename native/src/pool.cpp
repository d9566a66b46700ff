#include "pool.h"

#include <chrono>
#include <sched.h>
#include <string>
#include <system_error>

#include "arrays.h"

namespace {

constexpr auto SPIN = std::chrono::microseconds(60); // the gap between two kernels of one layer is shorter
constexpr int CHECKS = 64;

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits briefly for `ready`; gives the core away between checks, so that an oversubscribed machine loses nothing.
template <class Ready> bool spin_until(Ready ready) {
    auto end = std::chrono::steady_clock::now() + SPIN;
    do {
        for (int i = 0; i < CHECKS; i++) {
            if (ready()) return true;
            pause_cpu();
        }
        sched_yield();
    } while (std::chrono::steady_clock::now() < end);
    return ready();
}

} // namespace

Pool::Pool(int threads) : threads_(threads) {
    expect_range("threads", threads, 1, 1024);
    try {
        for (int i = 1; i < threads; i++) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error &error) {
        auto started = std::to_string(workers_.size() + 1);
        end_workers(); // there is no destructor for what was not constructed
        PyErr_Format(PyExc_OSError, "%d threads cannot be started, %s can: %s", threads, started.c_str(),
                     error.code().message().c_str());
        throw nb::python_error();
    }
}

Pool::~Pool() { end_workers(); }

void Pool::end_workers() {
    closing_ = true;
    batch_.fetch_add(1);
    batch_.notify_all();
    for (auto &worker : workers_) worker.join();
}

bool Pool::run_one() {
    uint64_t seen = claim_.load(std::memory_order_acquire);
    do {
        if ((uint32_t)seen >= (uint32_t)(seen >> 32)) return false;
    } while (!claim_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel));
    // The claimed task keeps its batch alive, so call and body are that batch's.
    call_.load(std::memory_order_relaxed)(body_.load(std::memory_order_relaxed), (int)(uint32_t)seen);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
    return true;
}

void Pool::run_batch(int tasks, Call call, const void *body) {
    if (tasks <= 0) return;
    ExactFloats exact_floats;
    if (threads_ == 1 || tasks == 1) {
        for (int task = 0; task < tasks; task++) call(body, task);
        return;
    }
    std::lock_guard<std::mutex> lock(one_batch_);
    call_.store(call, std::memory_order_relaxed);
    body_.store(body, std::memory_order_relaxed);
    left_.store(tasks, std::memory_order_relaxed);
    claim_.store((uint64_t)(uint32_t)tasks << 32, std::memory_order_release);
    batch_.fetch_add(1);
    if (asleep_.load() > 0) batch_.notify_all();
    while (run_one()) {}
    if (!spin_until([this] { return left_.load(std::memory_order_acquire) == 0; }))
        for (int left = left_.load(); left > 0; left = left_.load()) left_.wait(left);
}

void Pool::work() {
    ExactFloats exact_floats;
    while (!closing_) {
        uint32_t seen = batch_.load();
        while (run_one()) {}
        if (spin_until([&] { return batch_.load() != seen; })) continue;
        asleep_.fetch_add(1);
        batch_.wait(seen);
        asleep_.fetch_sub(1);
    }
}

#if defined(__x86_64__)
ExactFloats::ExactFloats() : saved_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(0x1f80); }
ExactFloats::~ExactFloats() { __builtin_ia32_ldmxcsr((unsigned)saved_); }
#elif defined(__aarch64__)
ExactFloats::ExactFloats() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"((uint64_t)0));
}
ExactFloats::~ExactFloats() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }
#else
ExactFloats::ExactFloats() : saved_(0) {}
ExactFloats::~ExactFloats() {}
#endif
