// Array arguments of the Python boundary, and the errors it raises.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace nb = nanobind;
using nb::literals::operator""_a;

constexpr int MOST_DIMENSIONS = 4, ANY_DIMENSIONS = -1;

// Where a NumPy array in C order lies; `array` is borrowed, and there for as long as the call.
struct FoundArray {
    void *data = nullptr;
    nb::handle array;
    int dimensions = 0;
    size_t shape[MOST_DIMENSIONS] = {};
    // False unless it is one of this kind ('i', 'u', 'f'), this size of an item, and so many dimensions.
    bool find(nb::handle object, char kind, size_t item, int dimensions, bool writable) noexcept;
};

// An argument, not to be kept: see Kept. nanobind's own ndarray takes 1 us to import an array and 3 if it is read-only;
// a whole call with two of these takes 0.2.
template <class T, int N> class ArrayOf {
  public:
    bool find(nb::handle object) noexcept {
        using Item = std::remove_const_t<T>;
        constexpr char kind = std::is_floating_point_v<Item> ? 'f' : std::is_signed_v<Item> ? 'i' : 'u';
        return found_.find(object, kind, sizeof(T), N, !std::is_const_v<T>);
    }
    T *data() const { return static_cast<T *>(found_.data); }
    nb::handle array() const { return found_.array; }
    size_t ndim() const { return (size_t)found_.dimensions; }
    size_t shape(size_t i) const { return found_.shape[i]; }
    size_t size() const {
        size_t count = 1;
        for (int i = 0; i < found_.dimensions; i++) count *= found_.shape[i];
        return count;
    }
    size_t nbytes() const { return size() * sizeof(T); }
    T &operator()(size_t i) const { return data()[i]; }

  private:
    FoundArray found_;
};

template <class T, int N> using In = ArrayOf<const T, N>;
template <class T, int N> using Out = ArrayOf<T, N>;
template <class T> using Any = ArrayOf<T, ANY_DIMENSIONS>;

// An array that outlives the call it was an argument of. Made, copied and destroyed with the interpreter held; given on
// as the In or Out that it is, which costs no count.
template <class Array> class Kept : public Array {
  public:
    Kept(const Array &array) : Array(array), owner_(nb::borrow(array.array())) {}

  private:
    nb::object owner_;
};

namespace nanobind::detail {
template <class T, int N> struct type_caster<ArrayOf<T, N>> {
    using Array = ArrayOf<T, N>;
    NB_TYPE_CASTER(Array, const_name("numpy.ndarray"))
    template <class Flags> bool from_python(handle object, Flags, cleanup_list *) noexcept {
        return value.find(object);
    }
};
} // namespace nanobind::detail

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

enum class DType { i1, u1, i4, i8, f4 };

// A read-only NumPy array of this shape at `data`, in memory that `owner` keeps; far cheaper than an export by
// nanobind, which passes through numpy.asarray.
nb::object array_at(nb::handle owner, const void *data, DType dtype, std::initializer_list<size_t> shape);

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
