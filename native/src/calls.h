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

// New bytes; `data` is theirs to be filled.
struct NewBytes {
    char *data;
    nb::object object;
    explicit NewBytes(size_t size);
};

nb::object array_of(const std::vector<int32_t> &values); // a copy

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

// Where each entry's weighted row goes: index into the single rows, or -1 - index into the sums.
struct Slots {
    std::vector<int32_t> of_entry, single_row, sum_row; // the window's rows with one entry, and with more
};

// `entry_row` are indices into `row`, the window's rows.
Slots slots_of(In<int32_t, 1> entry_row, In<int32_t, 1> row);

// (rows, width) in 48 bits each into 6 * count bytes; false if one does not fit.
bool fits_48(const int64_t *sums, size_t count);
void pack_48(const int64_t *sums, size_t count, char *out);

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
