// Norms, rotary positions and residual sums of rows; memory is the caller's, and contiguous.
#pragma once

#include "kernels.h"

class Pool;

// out (n) = the RMS norm of x (n), times weight (n); `out` may be `x`.
void norm_row(const float *x, const float *weight, float eps, float *out, int n);
// The same of every row; `pool` may be null.
void norm_rows(Pool *pool, const float *x, const float *weight, float eps, float *out, long rows, int n);
// The heads of one row, (heads, 2 * half), turned to its position: cos and sin (half).
void turn_heads(float *x, int heads, const float *cos, const float *sin, int half);
// x (rows, n) += y (rows, n); `pool` may be null.
void add_rows(Pool *pool, float *x, const float *y, long rows, int n);
