// What keeps a process safe from the outside: mapped files that shrink, parents that die.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays.h"

namespace {

// A watched range; the handler may read it at any moment, so every field is atomic and slots are never freed.
struct Range {
    std::atomic<uintptr_t> begin{0}, end{0}; // end 0: slot free
    std::atomic<int64_t> fault{-1};
};

constexpr int SLOTS = 2048; // a model has up to 256 files, watched by several
Range ranges[SLOTS];
struct sigaction previous;
std::atomic<bool> installed{false};

// A page behind the end of a shrunk file: put zeros there so that the kernel can finish, and remember the place.
// Whoever asked for the work looks at `fault` before it uses the result.
void on_bus_error(int signal, siginfo_t *info, void *context) {
    uintptr_t address = (uintptr_t)info->si_addr;
    bool replaced = false;
    for (Range &range : ranges) { // every watch that covers the place is told: each answers for its own results
        uintptr_t end = range.end.load(), begin = range.begin.load();
        if (address < begin || address >= end) continue;
        if (!replaced) {
            uintptr_t page = address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
            void *put = mmap((void *)page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            if (put == MAP_FAILED) break;
            replaced = true;
        }
        int64_t none = -1;
        range.fault.compare_exchange_strong(none, (int64_t)(address - begin));
    }
    if (replaced) return;
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(signal, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(signal);
    else
        std::signal(SIGBUS, SIG_DFL); // the access is repeated and ends the process as it would have
}

void install() {
    if (installed.exchange(true)) return;
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
}

class Watch {
  public:
    Watch(In<uint8_t, 1> data, int descriptor, nb::bytes path, int64_t modified_ns)
        : owner_(nb::borrow(data.array())), descriptor_(descriptor), path_(path.c_str()), size_((int64_t)data.shape(0)),
          modified_ns_(modified_ns) {
        install();
        for (Range &range : ranges) {
            uintptr_t free_slot = 0;
            if (!range.begin.compare_exchange_strong(free_slot, (uintptr_t)data.data())) continue;
            range.fault = -1;
            range.end = (uintptr_t)data.data() + data.shape(0);
            range_ = &range;
            return;
        }
        throw std::runtime_error("more than " + std::to_string(SLOTS) + " mapped files are watched");
    }
    ~Watch() { close(); }
    Watch(const Watch &) = delete;

    // Nothing was lost, and the mapped file and whatever has its path now are as they were. A removed file is no
    // change.
    bool intact() const {
        struct stat now;
        if (fault() >= 0 || fstat(descriptor_, &now) || !is_same(now)) return false;
        return stat(path_.c_str(), &now) ? errno == ENOENT : is_same(now);
    }
    int64_t fault() const { return range_ ? range_->fault.load() : last_; }
    void close() {
        if (!range_) return;
        last_ = range_->fault.load();
        range_->end = 0;
        range_->begin = 0;
        range_ = nullptr;
        owner_ = nb::object();
    }

  private:
    bool is_same(const struct stat &now) const {
        return now.st_size == size_ && now.st_mtim.tv_sec * 1000000000LL + now.st_mtim.tv_nsec == modified_ns_;
    }

    nb::object owner_;
    const int descriptor_;
    const std::string path_;
    const int64_t size_, modified_ns_;
    Range *range_ = nullptr;
    int64_t last_ = -1;
};

bool die_with_parent(int expected_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == expected_parent; // it may have died before the call
}

} // namespace

void bind_guard(nb::module_ &m) {
    nb::class_<Watch>(m, "Watch")
        .def(nb::init<In<uint8_t, 1>, int, nb::bytes, int64_t>(), "data"_a, "descriptor"_a, "path"_a, "modified_ns"_a)
        .def("intact", &Watch::intact)
        .def("fault", &Watch::fault)
        .def("close", &Watch::close);
    m.def("die_with_parent", &die_with_parent, "expected_parent"_a);
}
