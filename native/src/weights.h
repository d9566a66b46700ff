// One GGUF tensor of matrices: in the file's own row layout, or packed.
#pragma once

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

struct Weights {
    Kept<In<uint8_t, 1>> bytes; // keeps the mapping alive
    const uint8_t *data;
    TensorType type;
    long matrices;
    int rows, columns;
    bool packed;   // in groups of PACKED_ROWS; rows after the last whole group are as in GGUF files
    size_t stride; // bytes per row

    Weights(In<uint8_t, 1> bytes, int type, long matrices, int rows, int columns, bool packed);
    bool quantised() const { return is_quantised(type); }
    bool in_groups(int r) const { return packed && r < rows / PACKED_ROWS * PACKED_ROWS; }
    void dequantise(long matrix, int r, float *out) const;
    const uint8_t *row(long matrix, int r) const { return data + ((size_t)matrix * rows + r) * stride; }
};
