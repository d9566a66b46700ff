// Enough of CUDA C++ to run kernels on a processor, one block after the other: each thread of a block is a fiber that
// runs until it must wait for others. Nothing runs at the same time, so atomics are plain; a barrier that not all of
// its threads reach ends the process with a message.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__ static

struct Place {
    unsigned x = 0, y = 0, z = 0;
};

namespace fibers {

constexpr int WARP = 32, MOST = 1024;
constexpr size_t STACK = 64 << 10;

struct Barrier {
    int arrived = 0;
    unsigned long round = 0;
};

struct Fiber {
    jmp_buf at;
    bool done = true;
    std::vector<char> stack;
};

inline std::vector<Fiber> all(MOST);
inline jmp_buf scheduler;
inline int current = 0, count = 0, ended = 0;
inline bool moved = false;
inline Barrier of_block, of_warp[MOST / WARP];
inline uint64_t exchanged[2][MOST];
inline int exchanges[MOST];
inline void (*body)(void *) = nullptr;
inline void *body_of = nullptr;

inline void yield() {
    if (_setjmp(all[current].at) == 0) _longjmp(scheduler, 1);
}

inline void wait(Barrier &barrier, int expected) {
    unsigned long round = barrier.round;
    moved = true;
    if (++barrier.arrived == expected) {
        barrier.arrived = 0;
        barrier.round++;
        return;
    }
    while (barrier.round == round) yield();
    moved = true;
}

// A fiber's whole life: the kernel for one block after the other. It never returns.
inline void live() {
    for (;;) {
        body(body_of);
        all[current].done = true;
        ended++;
        moved = true;
        yield();
    }
}

inline void resume(int fiber) {
    Fiber &f = all[fiber];
    current = fiber;
    if (_setjmp(scheduler) != 0) return;
    if (!f.stack.empty()) _longjmp(f.at, 1);
    f.stack.resize(STACK);
    ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = f.stack.data();
    first.uc_stack.ss_size = STACK;
    first.uc_link = nullptr;
    makecontext(&first, live, 0);
    setcontext(&first);
}

inline int members(unsigned mask) { return __builtin_popcount(mask); }

} // namespace fibers

inline Place blockIdx, blockDim, gridDim;

struct ThreadPlace {
    struct {
        operator unsigned() const { return (unsigned)fibers::current; }
    } x;
};
inline ThreadPlace threadIdx;

inline void __syncthreads() { fibers::wait(fibers::of_block, fibers::count); }

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    fibers::wait(fibers::of_warp[fibers::current / fibers::WARP], fibers::members(mask));
}

// What lane `from` of this thread's warp gives. Two places in turn, so that one barrier is enough.
template <class T> inline T exchange(unsigned mask, T mine, int from) {
    using namespace fibers;
    int turn = exchanges[current]++ & 1, warp = current / WARP * WARP;
    memcpy(&exchanged[turn][current], &mine, sizeof(T));
    __syncwarp(mask);
    T theirs;
    memcpy(&theirs, &exchanged[turn][warp + from], sizeof(T));
    return theirs;
}

inline int lane_here() { return fibers::current % fibers::WARP; }

template <class T> inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
    return exchange(mask, x, lane_here() / width * width + from % width);
}

template <class T> inline T __shfl_down_sync(unsigned mask, T x, int by, int width = 32) {
    int lane = lane_here();
    return exchange(mask, x, lane % width + by < width ? lane + by : lane);
}

template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int by, int width = 32) {
    int other = lane_here() ^ by;
    return exchange(mask, x, other / width == lane_here() / width ? other : lane_here());
}

inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) sum += (int8_t)((unsigned)a >> 8 * i) * (int8_t)((unsigned)b >> 8 * i);
    return sum;
}

inline int atomicMin(int *at, int value) {
    int before = *at;
    if (value < before) *at = value;
    return before;
}

inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long value) {
    unsigned long long before = *at;
    *at = before + value;
    return before;
}

// Kernels take their arguments as an array of addresses, like the driver's own launch.
template <class... A, size_t... I> void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_cv_t<A> *)arguments[I]...);
}

struct Launch {
    unsigned blocks[3];
    unsigned threads;
};

template <class... A> void run(void (*kernel)(A...), const Launch &launch, void **arguments) {
    using namespace fibers;
    auto one = [&] { call(kernel, arguments, std::index_sequence_for<A...>{}); };
    body = [](void *it) { (*(decltype(one) *)it)(); };
    body_of = &one;
    gridDim = {launch.blocks[0], launch.blocks[1], launch.blocks[2]};
    blockDim = {launch.threads, 1, 1};
    count = (int)launch.threads;
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                ended = 0;
                of_block = Barrier{};
                for (Barrier &warp : of_warp) warp = Barrier{};
                for (int t = 0; t < count; t++) all[t].done = false, exchanges[t] = 0;
                while (ended < count) {
                    moved = false;
                    for (int t = 0; t < count; t++)
                        if (!all[t].done) resume(t);
                    if (!moved) {
                        fprintf(stderr, "a barrier was not reached by all threads that it waits for\n");
                        abort();
                    }
                }
            }
}
