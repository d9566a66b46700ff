// The frames of a step message: written from arrays, or read into views of them.
#pragma once

#include <cstring>
#include <initializer_list>
#include <vector>

#include "arrays.h"

namespace framing {

constexpr uint8_t MAGIC = 0xc1; // no msgpack begins with it
constexpr size_t ALIGNMENT = 8, LARGE = 64 << 10, LARGEST_FRAME = 64 << 20, LARGEST_TEXT = 64 << 10;

inline size_t aligned(size_t at) { return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

} // namespace framing

enum class DType { i1, u1, i4, i8, f4 };

// A read-only NumPy array of this shape at `data`, in memory that `owner` keeps; far cheaper than an export by
// nanobind, which passes through numpy.asarray.
nb::object array_at(nb::handle owner, const void *data, DType dtype, std::initializer_list<size_t> shape);

// New bytes; `data` is theirs to be filled.
struct NewBytes {
    char *data;
    nb::object object;
    explicit NewBytes(size_t size);
};

struct Span {
    const void *data;
    size_t bytes;
};

// A header, and behind it all arrays that are not large.
class Writer {
  public:
    Writer(uint8_t kind, std::initializer_list<int64_t> numbers, std::initializer_list<size_t> extents, nb::str text);
    // (frame, number of arrays that are large and not in it)
    nb::tuple frame(std::initializer_list<Span> arrays) const;

  private:
    std::vector<uint8_t> head_;
};

// An array found in the frames.
struct Array {
    DType dtype;
    size_t frame, offset;
    const void *data;
    int dimensions;
    size_t shape[3];
    template <class T> const T *as() const { return static_cast<const T *>(data); }
};

std::vector<nb::object> interned(std::initializer_list<const char *> names);

class Reader {
  public:
    Reader(nb::list frames, uint8_t kind, size_t numbers, size_t extents);
    ~Reader();
    Reader(const Reader &) = delete;

    Array take(DType dtype, size_t rows) { return find(dtype, 1, rows, 1, 1); }
    Array take(DType dtype, size_t rows, size_t columns) { return find(dtype, 2, rows, columns, 1); }
    Array take(DType dtype, size_t rows, size_t columns, size_t depth) { return find(dtype, 3, rows, columns, depth); }
    void end() const; // everything has been taken
    nb::object text() const;
    nb::object view(const Array &array) const; // read-only
    // An instance of a message class with these fields: what its __init__ does, but that is slow for a frozen one.
    static nb::object message(nb::handle cls, const std::vector<nb::object> &names,
                              std::initializer_list<nb::object> values);

    std::vector<int64_t> numbers;
    std::vector<size_t> extents;

  private:
    Array find(DType dtype, int dimensions, size_t rows, size_t columns, size_t depth);
    void open(nb::handle frame);

    std::vector<Py_buffer> buffers_;
    std::vector<nb::object> frames_; // what holds those bytes
    const char *text_;
    size_t text_bytes_, at_, next_ = 1;
};
