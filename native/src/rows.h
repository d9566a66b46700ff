// Activation rows of one window, in fp32, quantised, or both.
#pragma once

#include <mutex>
#include <vector>

#include "kernels.h"

class Pool;

class Rows {
  public:
    Rows(const float *values, long count, int columns);                      // copies
    Rows(std::vector<float> values, long count, int columns);                // takes over
    Rows(const int8_t *codes, const float *scales, long count, int columns); // copies and checks

    long count() const { return count_; }
    int columns() const { return columns_; }
    bool has_values() const { return !values_.empty() || count_ == 0; }
    bool can_quantise() const { return columns_ % 32 == 0; }
    void quantise(Pool *pool); // once; throws NonFinite; `pool` may be null
    Act act(long row) const;
    const float *values() const { return values_.data(); }
    const int8_t *codes() const { return codes_.data(); }
    const float *scales() const { return scales_.data(); }

  private:
    void reserve_codes();
    void add_up_sums();
    long count_;
    int columns_;
    bool quantised_ = false;
    std::mutex quantising_;
    std::vector<float> values_;
    std::vector<int8_t> codes_;
    std::vector<float> scales_;
    std::vector<int16_t> sums16_;
    std::vector<float> sums_;
};
