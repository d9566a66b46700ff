// Activation rows in the forms that tiles take them.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"

// `n` activation rows that meet the same weights.
class Inputs {
  public:
    Inputs() = default;
    // `rows` stay where they are; with `tiled` they are also there for packed weights, copied unless there is one.
    Inputs(const Act *rows, long n, int columns, bool tiled);

    const Act *rows() const { return rows_; }
    long count() const { return count_; }
    const std::vector<ActTile> &tiles() const { return tiles_; }

  private:
    ActTile gather(const Act *rows, int n, int columns);

    const Act *rows_ = nullptr;
    long count_ = 0;
    std::vector<ActTile> tiles_;
    std::vector<std::unique_ptr<uint8_t[]>> memory_;
};
