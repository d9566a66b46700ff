// Compiled with -mavx2 -mfma -mf16c.
#include "tiles_x86.h"

extern const Kernels AVX2_KERNELS = EXPERTMESH_X86_KERNELS("avx2");
