// The plain path: the reading of docs/arithmetic.md that every processor can run.
#include "attend_block.h"
#include "isa_common.h"
#include "packed_tiles.h"
#include "row_tiles.h"

namespace {

void half_to_float(const uint16_t *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = exact::from_half(x[i]);
}

void float_to_half(const float *x, uint16_t *y, int n) {
    for (int i = 0; i < n; i++) y[i] = exact::to_half(x[i]);
}

// Lane i % 16 takes column i; lanes join in a tree.
template <class Type> float float_dot(const uint8_t *w, const Act &act, int columns) {
    float lane[exact::LANES] = {};
    for (int i = 0; i < columns; i++)
        lane[i % exact::LANES] = exact::fused(Type::weight(w, i), act.values[i], lane[i % exact::LANES]);
    for (int width = exact::LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

template <class Type>
void float_tile(const uint8_t *w, size_t stride, int rows, int columns, const Act *acts, int n_acts, float *out) {
    for (int a = 0; a < n_acts; a++)
        for (int r = 0; r < rows; r++) out[a * TILE_ROWS + r] = float_dot<Type>(w + r * stride, acts[a], columns);
}

struct Dots {
    template <class Type> static int32_t of(Type, const uint8_t *block, int j, const int8_t *x) {
        int32_t dot = 0;
        for (int i = 0; i < exact::SUB; i++) dot += Type::integer(block, j, i) * x[i];
        return dot;
    }
};

} // namespace

#include "kernel_table.h"

constinit const Kernels SCALAR_KERNELS = kernel_table("scalar", row_tiles<Dots>());
