#include "inputs.h"

#include <algorithm>

#include "exact.h"

Inputs::Inputs(const Act *rows, long n, int columns, bool tiled) : rows_(rows), count_(n) {
    for (long a = 0; tiled && a < n; a += PACKED_ACTS)
        tiles_.push_back(gather(rows + a, (int)std::min<long>(n - a, PACKED_ACTS), columns));
}

ActTile Inputs::gather(const Act *rows, int n, int columns) {
    if (n == 1) return {1, rows->codes, rows->scales, rows->sums16, rows->sums};
    const size_t subs = (size_t)columns / exact::SUB, each = subs * n;
    memory_.push_back(std::make_unique_for_overwrite<uint8_t[]>(each * (exact::SUB + 12)));
    auto *codes = (int8_t *)memory_.back().get();
    auto *scales = (float *)(codes + each * exact::SUB), *sums = scales + each;
    auto *sums16 = (int16_t *)(sums + each);
    for (size_t s = 0; s < subs; s++)
        for (int a = 0; a < n; a++) {
            size_t at = s * n + a;
            memcpy(codes + at * exact::SUB, rows[a].codes + s * exact::SUB, exact::SUB);
            memcpy(sums16 + 2 * at, rows[a].sums16 + 2 * s, 4);
            scales[at] = rows[a].scales[s];
            sums[at] = rows[a].sums[s];
        }
    return {n, codes, scales, sums16, sums};
}
