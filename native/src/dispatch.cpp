// Which instruction set is in use.
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "arrays.h"
#include "kernels.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace {

#ifdef EXPERTMESH_X86
bool runs_here(const Kernels &k) {
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (&k == &AVX2_KERNELS) return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

std::vector<const Kernels *> runnable() {
    std::vector<const Kernels *> found{&SCALAR_KERNELS};
#ifdef EXPERTMESH_X86
    for (const Kernels *k : {&AVX2_KERNELS, &AVX512_KERNELS})
        if (runs_here(*k)) found.push_back(k);
#endif
    return found;
}

const Kernels *find_kernels(const std::string &isa) {
    for (const Kernels *k : runnable())
        if (k->name == isa) return k;
    return nullptr;
}

std::atomic<const Kernels *> in_use{nullptr};

void use(const std::string &name) {
    const Kernels *k = find_kernels(name);
    if (!k) {
        std::string have;
        for (const Kernels *r : runnable()) have += std::string(have.empty() ? "" : ", ") + r->name;
        throw std::invalid_argument("instruction set: one of " + have + " expected on this machine, found " + name);
    }
    in_use = k;
}

} // namespace

const Kernels &kernels() { return *in_use.load(std::memory_order_relaxed); }

void bind_dispatch(nb::module_ &m) {
    const char *forced = std::getenv("EXPERTMESH_ISA");
    if (forced && *forced)
        use(forced);
    else
        in_use = runnable().back();
    m.def("isa", [] { return std::string(kernels().name); });
    m.def("available_isas", [] {
        std::vector<std::string> names;
        for (const Kernels *k : runnable()) names.push_back(k->name);
        return names;
    });
    m.def("use_isa", &use, "name"_a);
}
