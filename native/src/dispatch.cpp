// Which instruction set is in use.
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "arrays.h"
#include "runnable.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace {

const Kernels *find_kernels(const std::string &isa) {
    for (const Kernels *k : runnable_kernels())
        if (k->name == isa) return k;
    return nullptr;
}

std::atomic<const Kernels *> in_use{nullptr};

void use(const std::string &name) {
    const Kernels *k = find_kernels(name);
    if (!k) {
        std::string have;
        for (const Kernels *r : runnable_kernels()) have += std::string(have.empty() ? "" : ", ") + r->name;
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
        in_use = runnable_kernels().back();
    m.def("isa", [] { return std::string(kernels().name); });
    m.def("available_isas", [] {
        std::vector<std::string> names;
        for (const Kernels *k : runnable_kernels()) names.push_back(k->name);
        return names;
    });
    m.def("use_isa", &use, "name"_a);
}
