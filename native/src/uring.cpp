// io_uring by its three system calls: a ring of requests, and one of results, in memory shared with the kernel.
#include "read_queue.h"

#include <cerrno>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

namespace reads {

#if defined(IORING_FEAT_RW_CUR_POS) && defined(__NR_io_uring_setup) // headers of Linux 5.6 or later

namespace {

class Mapping {
  public:
    ~Mapping() {
        if (data_ != MAP_FAILED) munmap(data_, size_);
    }
    bool map(int ring, uint64_t what, size_t size) {
        size_ = size;
        data_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, (off_t)what);
        return data_ != MAP_FAILED;
    }
    template <class T> T *at(uint32_t offset) const { return reinterpret_cast<T *>((char *)data_ + offset); }

  private:
    void *data_ = MAP_FAILED;
    size_t size_ = 0;
};

class Uring : public ReadQueue {
  public:
    ~Uring() override {
        if (ring_ >= 0) close(ring_);
    }

    bool open(int depth) {
        io_uring_params found{};
        ring_ = (int)syscall(__NR_io_uring_setup, (unsigned)depth, &found);
        // The feature came with the request that is used here.
        if (ring_ < 0 || !(found.features & IORING_FEAT_RW_CUR_POS)) return false;
        if (!asked_.map(ring_, IORING_OFF_SQ_RING, found.sq_off.array + found.sq_entries * sizeof(uint32_t)) ||
            !answered_.map(ring_, IORING_OFF_CQ_RING, found.cq_off.cqes + found.cq_entries * sizeof(io_uring_cqe)) ||
            !requests_.map(ring_, IORING_OFF_SQES, found.sq_entries * sizeof(io_uring_sqe)))
            return false;
        depth_ = depth;
        ask_tail_ = asked_.at<uint32_t>(found.sq_off.tail);
        ask_mask_ = *asked_.at<uint32_t>(found.sq_off.ring_mask);
        index_ = asked_.at<uint32_t>(found.sq_off.array);
        answer_head_ = answered_.at<uint32_t>(found.cq_off.head);
        answer_tail_ = answered_.at<uint32_t>(found.cq_off.tail);
        answer_mask_ = *answered_.at<uint32_t>(found.cq_off.ring_mask);
        answers_ = answered_.at<io_uring_cqe>(found.cq_off.cqes);
        return true;
    }

    const char *kind() const override { return "io_uring"; }
    int depth() const override { return depth_; }

    void issue(Transfer &transfer) noexcept override {
        const uint32_t place = *ask_tail_ & ask_mask_;
        io_uring_sqe &request = requests_.at<io_uring_sqe>(0)[place];
        request = {};
        request.opcode = IORING_OP_READ;
        request.fd = transfer.descriptor;
        request.off = (uint64_t)transfer.offset;
        request.addr = (uint64_t)transfer.to;
        request.len = (uint32_t)transfer.count;
        request.user_data = (uint64_t)&transfer;
        index_[place] = place;
        __atomic_store_n(ask_tail_, *ask_tail_ + 1, __ATOMIC_RELEASE);
        unsent_++;
    }

    Transfer &await() noexcept override {
        while (true) {
            const bool ready = has_answer();
            if (ready && !unsent_) return take_answer();
            const long sent =
                syscall(__NR_io_uring_enter, ring_, unsent_, ready ? 0 : 1, IORING_ENTER_GETEVENTS, nullptr, (size_t)0);
            if (sent >= 0) {
                unsent_ -= (uint32_t)sent;
                sent_ += (uint32_t)sent;
            } else if (errno != EINTR) {
                if (Transfer *refused = after_refusal(errno)) return *refused;
            }
        }
    }

  private:
    bool has_answer() const { return __atomic_load_n(answer_tail_, __ATOMIC_ACQUIRE) != *answer_head_; }

    Transfer &take_answer() noexcept {
        const io_uring_cqe &answer = answers_[*answer_head_ & answer_mask_];
        Transfer &transfer = *(Transfer *)answer.user_data;
        transfer.result = answer.res;
        __atomic_store_n(answer_head_, *answer_head_ + 1, __ATOMIC_RELEASE);
        sent_--;
        // Older kernels do not wait for a descriptor that was opened with O_NONBLOCK.
        if (transfer.result == -EAGAIN) transfer.result = read_at(transfer);
        return transfer;
    }

    // The kernel takes no more: first what it has is awaited. If it has nothing, the last request is taken back, which
    // is safe as it looks at them only when it is called.
    Transfer *after_refusal(int error) noexcept {
        if (has_answer()) return &take_answer();
        if (sent_) {
            syscall(__NR_io_uring_enter, ring_, 0u, 1u, IORING_ENTER_GETEVENTS, nullptr, (size_t)0);
            return nullptr;
        }
        const uint32_t last = *ask_tail_ - 1;
        Transfer &refused = *(Transfer *)requests_.at<io_uring_sqe>(0)[last & ask_mask_].user_data;
        __atomic_store_n(ask_tail_, last, __ATOMIC_RELEASE);
        unsent_--;
        refused.result = -error;
        return &refused;
    }

    int ring_ = -1, depth_ = 0;
    Mapping asked_, answered_, requests_;
    uint32_t *ask_tail_, *index_, *answer_head_, *answer_tail_;
    uint32_t ask_mask_, answer_mask_;
    const io_uring_cqe *answers_;
    uint32_t unsent_ = 0, sent_ = 0; // requests that the kernel has not been called for; that it has
};

} // namespace

std::unique_ptr<ReadQueue> io_uring_queue(int depth) {
    auto queue = std::make_unique<Uring>();
    if (!queue->open(depth)) return nullptr;
    return queue;
}

#else

std::unique_ptr<ReadQueue> io_uring_queue(int) { return nullptr; }

#endif

} // namespace reads
