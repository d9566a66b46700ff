// What the parts of a placement have in common: nobody's number, when times are alike, and what arrays may hold.
#pragma once

#include <cmath>

#include "arrays.h"

namespace placing {

constexpr int64_t NOBODY = -1;
// Times that differ by less, relative to the larger one, are the same: they are sums of the same numbers.
constexpr double CLOSE = 1e-9;
constexpr double MOST = 1e30;

template <class T, int N> void expect_shape(const char *what, In<T, N> array, std::initializer_list<size_t> shape) {
    size_t axis = 0;
    for (size_t extent : shape) {
        expect_equal((std::string(what) + ": axis " + std::to_string(axis)).c_str(), array.shape(axis), extent);
        axis++;
    }
}

// Bounded, so that no sum or product of them is infinite or not a number, and they have an order.
template <int N> void expect_numbers(const char *what, In<double, N> numbers) {
    for (size_t i = 0; i < numbers.size(); i++)
        if (!(std::abs(numbers.data()[i]) <= MOST))
            refuse(std::string(what) + ": numbers of at most 1e30 expected, found " +
                   std::to_string(numbers.data()[i]));
}

inline void expect_sizes(const char *what, In<int64_t, 1> sizes) {
    for (size_t i = 0; i < sizes.size(); i++)
        if (sizes(i) < 0) refuse(std::string(what) + ": 0 or more expected, found " + std::to_string(sizes(i)));
}

} // namespace placing
