#include "step_buffers.h"

namespace {

template <class Array> void check_shape(const char *name, const Array &array, std::initializer_list<int> shape) {
    size_t axis = 0;
    for (int expected : shape) expect_equal(name, array.shape(axis++), (size_t)expected);
}

std::vector<nb::object> listed(nb::sequence caches) {
    std::vector<nb::object> list;
    for (nb::handle cache : caches) {
        if (!nb::isinstance<KvCache>(cache)) throw nb::type_error("caches: a KvCache each expected");
        list.push_back(nb::borrow(cache));
    }
    return list;
}

// One part of each cache that has rows; they must follow each other, and so must their positions.
std::vector<Part> parts_of(const std::vector<KvCache *> &caches, const In<int32_t, 1> &row_cache,
                           const In<int32_t, 1> &row_position) {
    std::vector<Part> parts;
    for (int r = 0; r < (int)row_cache.shape(0); r++) {
        int before = r ? row_cache(r - 1) : -1;
        expect(row_cache(r) >= 0 && (size_t)row_cache(r) < caches.size(), "row_cache: out of range");
        expect(row_cache(r) >= before, "row_cache: must ascend");
        if (row_cache(r) > before)
            parts.push_back({caches[row_cache(r)], r, 0, row_position(r)});
        else
            expect(row_position(r) == row_position(r - 1) + 1, "row_position: must count up along a sequence");
        parts.back().rows++;
    }
    return parts;
}

} // namespace

StepBuffers::StepBuffers(Out<float, 2> x, Out<float, 2> normed, Out<float, 3> query, Out<float, 3> key,
                         Out<float, 3> value, Out<float, 2> attended, Out<float, 2> router, In<float, 2> cos,
                         In<float, 2> sin, nb::sequence caches, In<int32_t, 1> row_cache, In<int32_t, 1> row_position)
    : x(x), normed(normed), query(query), key(key), value(value), attended(attended), router(router), cos(cos),
      sin(sin), row_position(row_position), sequence(listed(caches)), rows((int)x.shape(0)), width((int)x.shape(1)),
      heads((int)query.shape(1)), kv_heads((int)key.shape(1)), head_dim((int)query.shape(2)),
      normed_rows(Rows::Lent{normed.data()}, rows, width),
      attended_rows(Rows::Lent{attended.data()}, rows, heads * head_dim) {
    expect(rows > 0 && kv_heads > 0 && heads > 0 && heads % kv_heads == 0,
           "query: heads must be a multiple of kv heads");
    expect(head_dim > 0 && head_dim % 2 == 0, "query: head_dim must be even");
    check_shape("normed: shape", normed, {rows, width});
    check_shape("query: shape", query, {rows, heads, head_dim});
    check_shape("key: shape", key, {rows, kv_heads, head_dim});
    check_shape("value: shape", value, {rows, kv_heads, head_dim});
    check_shape("attended: shape", attended, {rows, heads * head_dim});
    check_shape("router: rows", router, {rows});
    check_shape("cos: shape", cos, {rows, head_dim / 2});
    check_shape("sin: shape", sin, {rows, head_dim / 2});
    check_shape("row_cache: length", row_cache, {rows});
    check_shape("row_position: length", row_position, {rows});
    std::vector<KvCache *> each;
    for (const nb::object &cache : sequence) {
        each.push_back(nb::cast<KvCache *>(cache));
        expect(each.back()->kv_heads == kv_heads && each.back()->head_dim == head_dim,
               "caches: kv heads or head_dim differ");
    }
    parts = parts_of(each, row_cache, row_position);
    runs = runs_of(each, row_cache.data(), rows);
}

void bind_step_buffers(nb::module_ &m) {
    using F2 = Out<float, 2>;
    using F3 = Out<float, 3>;
    nb::class_<StepBuffers>(m, "StepBuffers")
        .def(nb::init<F2, F2, F3, F3, F3, F2, F2, In<float, 2>, In<float, 2>, nb::sequence, In<int32_t, 1>,
                      In<int32_t, 1>>(),
             "x"_a, "normed"_a, "query"_a, "key"_a, "value"_a, "attended"_a, "router"_a, "cos"_a, "sin"_a, "caches"_a,
             "row_cache"_a, "row_position"_a);
}
