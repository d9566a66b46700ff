// Compiled with -mavx2 -mfma -mf16c.
#include "tiles_x86.h"

constinit const Kernels AVX2_KERNELS = kernel_table("avx2", quantised_tiles());
