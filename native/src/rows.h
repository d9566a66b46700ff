// Activation rows of one window, in fp32, quantised, or both.
#pragma once

#include <mutex>
#include <vector>

#include "kernels.h"

class Pool;

class Rows {
  public:
    // Values that stay where they are, and are there for as long as anybody asks for more than codes and scales.
    struct Lent {
        const float *values;
    };
    Rows(Lent values, long count, int columns);
    Rows(const float *values, long count, int columns);                      // copies
    Rows(std::vector<float> values, long count, int columns);                // takes over
    Rows(const int8_t *codes, const float *scales, long count, int columns); // copies and checks

    long count() const { return count_; }
    int columns() const { return columns_; }
    bool has_values() const { return values_ || count_ == 0; }
    bool can_quantise() const { return columns_ % 32 == 0; }
    void quantise(Pool *pool);           // once; throws NonFinite; `pool` may be null
    void renew() { quantised_ = false; } // the lent values are others now
    void keep_values();                  // from now on a copy
    void drop_values() { values_ = nullptr; }
    Act act(long row) const;
    const float *values() const { return values_; }
    const int8_t *codes() const { return codes_.data(); }
    const float *scales() const { return scales_.data(); }

  private:
    void reserve_codes();
    void add_up_sums();
    long count_;
    int columns_;
    bool quantised_ = false;
    std::mutex quantising_;
    const float *values_ = nullptr; // lent or own
    std::vector<float> own_values_;
    std::vector<int8_t> codes_;
    std::vector<float> scales_;
    std::vector<int16_t> sums16_;
    std::vector<float> sums_;
};
