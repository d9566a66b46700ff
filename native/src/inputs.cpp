#include "inputs.h"

#include <algorithm>

#include "exact.h"

namespace {

constexpr size_t SUB_BYTES = exact::SUB + 2 * sizeof(float) + 2 * sizeof(int16_t); // codes, scale, sum, its two halves

// The arrays of a tile of so many sub-blocks, one behind the other.
struct Arrays {
    int8_t *codes;
    float *scales, *sums;
    int16_t *sums16;
    Arrays(uint8_t *memory, size_t subs)
        : codes((int8_t *)memory), scales((float *)(memory + subs * exact::SUB)), sums(scales + subs),
          sums16((int16_t *)(sums + subs)) {}
};

} // namespace

Inputs::Inputs(const Act *rows, long n, int columns, bool tiled)
    : rows_(rows), count_(n), subs_((size_t)columns / exact::SUB) {
    if (!tiled || n == 0) return;
    if (n == 1) {
        tiles_.push_back({1, rows->codes, rows->scales, rows->sums16, rows->sums});
        return;
    }
    memory_ = std::make_unique_for_overwrite<uint8_t[]>((size_t)n * subs_ * SUB_BYTES);
    uint8_t *next = memory_.get();
    for (long a = 0; a < n; a += PACKED_ACTS) {
        int count = (int)std::min<long>(n - a, PACKED_ACTS);
        Arrays to(next, subs_ * count);
        tiles_.push_back({count, to.codes, to.scales, to.sums16, to.sums});
        next += subs_ * count * SUB_BYTES;
    }
}

void Inputs::gather() {
    if (!memory_) return;
    const Act *row = rows_;
    uint8_t *next = memory_.get();
    for (const ActTile &tile : tiles_) {
        Arrays to(next, subs_ * tile.n);
        for (size_t s = 0; s < subs_; s++)
            for (int a = 0; a < tile.n; a++) {
                size_t at = s * tile.n + a;
                memcpy(to.codes + at * exact::SUB, row[a].codes + s * exact::SUB, exact::SUB);
                memcpy(to.sums16 + 2 * at, row[a].sums16 + 2 * s, 4);
                to.scales[at] = row[a].scales[s];
                to.sums[at] = row[a].sums[s];
            }
        row += tile.n;
        next += subs_ * tile.n * SUB_BYTES;
    }
}
