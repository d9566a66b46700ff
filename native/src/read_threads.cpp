#include "read_queue.h"

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

namespace reads {

int64_t read_at(const Transfer &transfer) noexcept {
    while (true) {
        const int64_t came = pread(transfer.descriptor, transfer.to, (size_t)transfer.count, transfer.offset);
        if (came >= 0) return came;
        if (errno != EINTR) return -errno;
    }
}

namespace {

// Transfers in the order in which they came, as many as may be under way.
class Line {
  public:
    explicit Line(size_t most) : places_(most) {}
    bool empty() const { return put_ == taken_; }
    void put(Transfer *transfer) { places_[put_++ % places_.size()] = transfer; }
    Transfer *take() { return places_[taken_++ % places_.size()]; }

  private:
    std::vector<Transfer *> places_;
    size_t put_ = 0, taken_ = 0;
};

class Threads : public ReadQueue {
  public:
    explicit Threads(int threads) : depth_(threads), waiting_((size_t)threads), ended_((size_t)threads) {
        try {
            for (int i = 0; i < threads; i++) threads_.emplace_back([this] { work(); });
        } catch (...) {
            end(); // there is no destructor for what was not constructed
            throw;
        }
    }
    ~Threads() override { end(); }

    const char *kind() const override { return "threads"; }
    int depth() const override { return depth_; }

    void issue(Transfer &transfer) noexcept override {
        {
            std::lock_guard lock(mutex_);
            waiting_.put(&transfer);
        }
        has_work_.notify_one();
    }

    Transfer &await() noexcept override {
        std::unique_lock lock(mutex_);
        has_ended_.wait(lock, [this] { return !ended_.empty(); });
        return *ended_.take();
    }

  private:
    void work() {
        std::unique_lock lock(mutex_);
        while (true) {
            has_work_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
            if (closing_) return;
            Transfer *transfer = waiting_.take();
            lock.unlock();
            transfer->result = read_at(*transfer);
            lock.lock();
            ended_.put(transfer);
            has_ended_.notify_one();
        }
    }

    void end() {
        {
            std::lock_guard lock(mutex_);
            closing_ = true;
        }
        has_work_.notify_all();
        for (std::thread &thread : threads_) thread.join();
    }

    const int depth_;
    std::mutex mutex_;
    std::condition_variable has_work_, has_ended_;
    Line waiting_, ended_;
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

} // namespace

std::unique_ptr<ReadQueue> thread_queue(int threads) { return std::make_unique<Threads>(threads); }

} // namespace reads
