// Which experts a row takes, and how much of each.
#pragma once

#include <cstdint>

class Pool;

struct Choice {
    int k;
    bool normalise; // the weights add up to 1 before they are scaled
    float scale;
};

void check_choice(const Choice &choice, long experts);
// ids and weights (rows, k) of logits (rows, experts), best first; throws NonFinite. `pool` may be null.
void choose_experts(Pool *pool, const float *logits, long rows, long experts, const Choice &choice, int32_t *ids,
                    float *weights);
