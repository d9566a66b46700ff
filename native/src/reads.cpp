// The Python boundary of reading many ranges of files at once.
#include <mutex>
#include <optional>
#include <system_error>

#include <nanobind/stl/unique_ptr.h>

#include "arrays.h"
#include "read_batch.h"

namespace {

using namespace reads;

using I4 = In<int32_t, 1>;
using I8 = In<int64_t, 1>;

Range range_of(int descriptor, int64_t offset, int64_t count) {
    expect(offset >= 0 && count >= 0 && offset <= INT64_MAX - PAGE - count, "offsets, counts: out of range");
    return {descriptor, offset, count};
}

// Destinations stay alive, wherever the list that names them goes meanwhile. Of the thread that holds the interpreter.
class Destinations {
  public:
    Destinations(I4 descriptors, I8 offsets, nb::sequence into) {
        const size_t n = descriptors.shape(0);
        expect_equal("offsets", offsets.shape(0), n);
        expect_equal("into", nb::len(into), n);
        arrays_.reserve(n);
        wanted.reserve(n);
        for (size_t i = 0; i < n; i++) {
            nb::object item = into[i];
            Out<uint8_t, 1> array;
            if (!array.find(item)) refuse("into: item " + std::to_string(i) + " is no writable array of bytes");
            wanted.push_back({range_of(descriptors(i), offsets(i), (int64_t)array.shape(0)), array.data()});
            arrays_.push_back(std::move(item));
        }
    }
    std::vector<Wanted> wanted;

  private:
    std::vector<nb::object> arrays_;
};

class Reader {
  public:
    Reader(int depth, int threads, bool uring) {
        expect_range("depth", depth, 1, 4096);
        expect_range("threads", threads, 1, 256);
        if (uring) queue_ = io_uring_queue(depth);
        if (!queue_) start(threads);
        kind_ = queue_->kind();
    }

    const char *kind() const { return kind_; }

    Outcome read(I4 descriptors, I8 offsets, nb::sequence into, bool direct, bool whole_pages) {
        expect(direct || !whole_pages, "whole_pages: only where reads are direct");
        const Destinations destinations(descriptors, offsets, into);
        const Way way = whole_pages ? Way::WHOLE_PAGES : direct ? Way::DIRECT : Way::CACHED;
        nb::gil_scoped_release release;
        std::lock_guard lock(one_batch_);
        expect(queue_ != nullptr, "the reader is closed");
        return read_all(*queue_, *scratch_, destinations.wanted, way);
    }

    void close() {
        nb::gil_scoped_release release;
        std::lock_guard lock(one_batch_);
        queue_.reset();
        scratch_.reset();
    }

  private:
    void start(int threads) {
        try {
            queue_ = thread_queue(threads);
        } catch (const std::system_error &error) {
            PyErr_Format(PyExc_OSError, "%d threads cannot be started: %s", threads, error.code().message().c_str());
            throw nb::python_error();
        }
    }

    const char *kind_;
    std::mutex one_batch_;
    std::unique_ptr<ReadQueue> queue_;
    std::optional<Scratch> scratch_{std::in_place};
};

// (index, errno or 0) of each range that did not come whole.
template <bool ERROR> nb::object failures(const Outcome &outcome) {
    size_t n = 0;
    for (int is : outcome.each) n += is != CAME;
    NewArray<int32_t> found({n});
    size_t at = 0;
    for (size_t i = 0; i < outcome.each.size(); i++)
        if (outcome.each[i] != CAME)
            found.data[at++] = !ERROR ? (int)i : outcome.each[i] == ENDED ? 0 : outcome.each[i];
    return found.object;
}

nb::tuple merge_windows(I4 descriptors, I8 offsets, I8 counts) {
    const size_t n = descriptors.shape(0);
    expect_equal("offsets", offsets.shape(0), n);
    expect_equal("counts", counts.shape(0), n);
    std::vector<Range> ranges;
    for (size_t i = 0; i < n; i++) ranges.push_back(range_of(descriptors(i), offsets(i), counts(i)));
    const std::vector<Range> windows = merge(ranges).windows;
    NewArray<int32_t> descriptor({windows.size()});
    NewArray<int64_t> offset({windows.size()}), count({windows.size()});
    for (size_t w = 0; w < windows.size(); w++) {
        descriptor.data[w] = windows[w].descriptor;
        offset.data[w] = windows[w].offset;
        count.data[w] = windows[w].count;
    }
    return nb::make_tuple(descriptor.object, offset.object, count.object);
}

} // namespace

void bind_reads(nb::module_ &m) {
    nb::class_<Outcome>(m, "ReadResult")
        .def_prop_ro("failed", &failures<false>)
        .def_prop_ro("errors", &failures<true>)
        .def_ro("bytes", &Outcome::bytes)
        .def_ro("requests", &Outcome::requests)
        .def_ro("max_in_flight", &Outcome::most_in_flight)
        .def_ro("us", &Outcome::us);
    nb::class_<Reader>(m, "Reader")
        .def(nb::init<int, int, bool>(), nb::kw_only(), "depth"_a = 64, "threads"_a = 8, "uring"_a = true)
        .def_prop_ro("kind", &Reader::kind)
        .def("read", &Reader::read, "descriptors"_a, "offsets"_a, "into"_a, "direct"_a, "whole_pages"_a = false)
        .def("close", &Reader::close);
    m.def("merge_windows", &merge_windows, "descriptors"_a, "offsets"_a, "counts"_a);
}
