#include "runnable.h"

#if defined(EXPERTMESH_NEON)
#include <sys/auxv.h>
#endif

std::vector<const Kernels *> runnable_kernels() {
    std::vector<const Kernels *> found{&SCALAR_KERNELS};
#if defined(EXPERTMESH_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
        found.push_back(&AVX2_KERNELS);
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512vnni"))
            found.push_back(&AVX512_KERNELS);
    }
#elif defined(EXPERTMESH_NEON)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) found.push_back(&NEON_KERNELS);
#endif
    return found;
}
