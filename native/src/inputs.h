// Activation rows in the forms that tiles take them.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"

// `n` activation rows that meet the same weights.
class Inputs {
  public:
    // `rows` stay where they are. With `tiled` they will also be there for packed weights, once they have been
    // gathered.
    Inputs(const Act *rows, long n, int columns, bool tiled);
    // Copies the rows to their places in tiles; must not be left out. Allocates nothing.
    void gather();

    const Act *rows() const { return rows_; }
    long count() const { return count_; }
    const std::vector<ActTile> &tiles() const { return tiles_; }

  private:
    const Act *rows_ = nullptr;
    long count_ = 0;
    size_t subs_ = 0; // of a row
    std::vector<ActTile> tiles_;
    std::unique_ptr<uint8_t[]> memory_;
};
