// The module: each family of kernels binds itself.
#include "arrays.h"
#include "pool.h"

#include <malloc.h>
#include <nanobind/stl/string.h>

void bind_dispatch(nb::module_ &);
void bind_weights(nb::module_ &);
void bind_packed(nb::module_ &);
void bind_rows(nb::module_ &);
void bind_matmul(nb::module_ &);
void bind_experts(nb::module_ &);
void bind_combine(nb::module_ &);
void bind_elementwise(nb::module_ &);
void bind_attention(nb::module_ &);
void bind_kv_cache(nb::module_ &);
void bind_router(nb::module_ &);
void bind_step_buffers(nb::module_ &);
void bind_dense_layer(nb::module_ &);
void bind_guard(nb::module_ &);
void bind_plan(nb::module_ &);
void bind_spread(nb::module_ &);
void bind_deal(nb::module_ &);
void bind_second_copies(nb::module_ &);
void bind_shared_out(nb::module_ &);
void bind_calls(nb::module_ &);
void bind_answers(nb::module_ &);
void bind_answer_call(nb::module_ &);
void bind_reads(nb::module_ &);
void bind_pages(nb::module_ &);

namespace {

PyObject *non_finite_error, *entry_range_error;

void raise_with_index(PyObject *type, const std::string &message, long index) {
    nb::object arguments = nb::make_tuple(message, index);
    PyErr_SetObject(type, arguments.ptr());
}

void translate(const std::exception_ptr &error, void *) {
    try {
        std::rethrow_exception(error);
    } catch (const NonFinite &e) {
        raise_with_index(non_finite_error, "row " + std::to_string(e.row) + " holds NaN or infinity", e.row);
    } catch (const EntryRange &e) {
        raise_with_index(entry_range_error,
                         "entry " + std::to_string(e.entry) + " is not finite or its magnitude reaches 2^22", e.entry);
    }
}

PyObject *new_error(nb::module_ &m, const char *name) {
    PyObject *type = PyErr_NewException((std::string("native._kernels.") + name).c_str(), PyExc_ValueError, nullptr);
    m.attr(name) = nb::borrow(type);
    return type;
}

// Buffers of a window are some megabytes each: as they come and go with every call, their memory stays in the process.
void keep_large_blocks() {
#ifdef M_MMAP_THRESHOLD
    // Older glibc takes 32 MiB at most. Either setting ends its own adapting, so one without the other is worse.
    if (mallopt(M_MMAP_THRESHOLD, 64 << 20) || mallopt(M_MMAP_THRESHOLD, 32 << 20))
        mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

} // namespace

NB_MODULE(_kernels, m) {
    keep_large_blocks();
    nb::set_leak_warnings(false); // a process may end while its threads still hold objects
    non_finite_error = new_error(m, "NonFiniteError");
    entry_range_error = new_error(m, "EntryRangeError");
    nb::register_exception_translator(translate);
    nb::class_<Pool>(m, "Pool").def(nb::init<int>(), "threads"_a).def_prop_ro("threads", &Pool::threads);
    bind_dispatch(m);
    bind_weights(m);
    bind_packed(m);
    bind_rows(m);
    bind_matmul(m);
    bind_experts(m);
    bind_combine(m);
    bind_elementwise(m);
    bind_kv_cache(m);
    bind_attention(m);
    bind_router(m);
    bind_step_buffers(m);
    bind_dense_layer(m);
    bind_guard(m);
    bind_plan(m);
    bind_spread(m);
    bind_deal(m);
    bind_second_copies(m);
    bind_shared_out(m);
    bind_calls(m);
    bind_answers(m);
    bind_answer_call(m);
    bind_reads(m);
    bind_pages(m);
}
