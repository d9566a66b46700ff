// The memory of one step's rows, checked once, that the layers' own parts (dense_layer.cpp) share.
#pragma once

#include "arrays.h"
#include "attention.h"
#include "rows.h"

// Rows [from, from + rows) of a step, which continue one sequence at `position`.
struct Part {
    KvCache *cache;
    int from, rows, position;
};

struct StepBuffers {
    Kept<Out<float, 2>> x, normed;         // (rows, width)
    Kept<Out<float, 3>> query, key, value; // (rows, heads or kv_heads, head_dim)
    Kept<Out<float, 2>> attended;          // (rows, heads * head_dim)
    Kept<Out<float, 2>> router;            // (rows, experts)
    Kept<In<float, 2>> cos, sin;           // (rows, head_dim / 2)
    Kept<In<int32_t, 1>> row_position;     // (rows)
    std::vector<nb::object> sequence;      // keeps the caches alive
    std::vector<Part> parts;
    std::vector<Run> runs;
    int rows, width, heads, kv_heads, head_dim;
    Rows normed_rows, attended_rows; // what lies in these buffers, for products

    StepBuffers(Out<float, 2> x, Out<float, 2> normed, Out<float, 3> query, Out<float, 3> key, Out<float, 3> value,
                Out<float, 2> attended, Out<float, 2> router, In<float, 2> cos, In<float, 2> sin, nb::sequence caches,
                In<int32_t, 1> row_cache, In<int32_t, 1> row_position);
};
