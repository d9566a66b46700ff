// One GGUF tensor of matrices: in the file's own row layout, or packed.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "arrays.h"
#include "exact.h"
#include "kernels.h"

// By their numbers in GGUF files.
enum class TensorType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    BF16 = 30,
};

size_t row_bytes(TensorType type, int columns); // throws on an unknown type or a row that is no whole blocks
bool is_quantised(TensorType type);
TileFn tile_of(TensorType type);
PackedTileFn packed_tile_of(TensorType type);
void dequantise_row(TensorType type, const uint8_t *row, int columns, float *out);

// A matrix lies at its place of the file's mapping, or wherever a copy of it was placed.
class Weights {
  public:
    TensorType type;
    long matrices;
    int rows, columns;
    bool packed;   // in groups of PACKED_ROWS; rows after the last whole group are as in GGUF files
    size_t stride; // bytes per row

    Weights(In<uint8_t, 1> bytes, int type, long matrices, int rows, int columns, bool packed);
    bool quantised() const { return is_quantised(type); }
    bool in_groups(int r) const { return packed && r < rows / PACKED_ROWS * PACKED_ROWS; }
    void dequantise(long matrix, int r, float *out) const;
    const uint8_t *row(long matrix, int r) const { return at(matrix) + (size_t)r * stride; }

    // From now on this matrix is read from `copy`, bytes equal to the file's. Others may be computing with it, but not
    // with an older copy of it: that is gone now.
    void place(long matrix, In<uint8_t, 1> copy);
    void unplace(long matrix);       // from the file's mapping again
    long checked(long matrix) const; // throws where there is no such matrix
    bool placed(long matrix) const { return at(matrix) != in_file(matrix); }

  private:
    const uint8_t *at(long matrix) const { return at_[(size_t)matrix].load(std::memory_order_acquire); }
    const uint8_t *in_file(long matrix) const { return bytes_.data() + (size_t)matrix * rows * stride; }
    Kept<In<uint8_t, 1>> bytes_; // keeps the mapping alive
    std::unique_ptr<std::atomic<const uint8_t *>[]> at_;
    std::vector<nb::object> copies_; // keep them alive
};
