// Compiled for AVX-512 F, BW, DQ, VL and VNNI: byte dots in one instruction, elementwise kernels 512 bits wide.
#define EXPERTMESH_AVX512 1
#include "tiles_x86.h"

constinit const Kernels AVX512_KERNELS = kernel_table("avx512", quantised_tiles());
