// Array arguments of the Python boundary, and the errors it raises.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <stdexcept>
#include <string>

namespace nb = nanobind;
using nb::literals::operator""_a;

template <class T, int N> using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N> using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T> using Any = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

// Raised in Python as NonFiniteError(message, row) and EntryRangeError(message, entry).
struct NonFinite {
    long row;
};
struct EntryRange {
    long entry;
};

// Literals only, so that a check that holds costs nothing; `refuse` is for texts that name values.
inline void expect(bool holds, const char *what) {
    if (!holds) [[unlikely]]
        throw std::invalid_argument(what);
}

[[noreturn]] inline void refuse(const std::string &what) { throw std::invalid_argument(what); }

inline void expect_equal(const char *what, size_t found, size_t expected) {
    if (found != expected) [[unlikely]]
        refuse(std::string(what) + ": " + std::to_string(expected) + " expected, found " + std::to_string(found));
}

inline void expect_range(const char *what, long found, long from, long to) {
    if (found < from || found > to) [[unlikely]]
        refuse(std::string(what) + ": " + std::to_string(from) + " to " + std::to_string(to) + " expected, found " +
               std::to_string(found));
}

// A new NumPy array of this shape that owns its memory.
template <class T> struct NewArray {
    T *data;
    nb::object object;
    explicit NewArray(std::initializer_list<size_t> shape) {
        size_t count = 1;
        for (size_t n : shape) count *= n;
        data = new T[count ? count : 1]();
        nb::capsule owner(data, [](void *p) noexcept { delete[] (T *)p; });
        object = nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.begin(), owner));
    }
};
