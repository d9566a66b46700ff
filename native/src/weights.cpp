#include "weights.h"

#include "blocks.h"

namespace {

struct TypeFacts {
    int block_columns, block_bytes;
};

TypeFacts facts(TensorType type) {
    switch (type) {
    case TensorType::F32: return {1, 4};
    case TensorType::F16: return {1, 2};
    case TensorType::BF16: return {1, 2};
    case TensorType::Q8_0: return {32, blocks::Q8_0_BYTES};
    case TensorType::Q4_K: return {256, blocks::Q4_K_BYTES};
    case TensorType::Q6_K: return {256, blocks::Q6_K_BYTES};
    }
    refuse("type: ggml type " + std::to_string((int)type) + " has no kernel");
}

float weight_at(TensorType type, const uint8_t *row, int i) {
    switch (type) {
    case TensorType::F32: {
        float v;
        memcpy(&v, row + 4 * (size_t)i, 4);
        return v;
    }
    case TensorType::F16: return exact::from_half(blocks::u16_at(row + 2 * (size_t)i));
    case TensorType::BF16: return exact::from_bf16(blocks::u16_at(row + 2 * (size_t)i));
    case TensorType::Q8_0: {
        const uint8_t *b = row + (size_t)(i / 32) * blocks::Q8_0_BYTES;
        return exact::from_half(blocks::u16_at(b)) * (float)(int8_t)b[2 + i % 32];
    }
    case TensorType::Q4_K: {
        const uint8_t *b = row + (size_t)(i / 256) * blocks::Q4_K_BYTES;
        uint8_t scale[8], minimum[8];
        blocks::unpack_scales6(b + 4, scale, minimum);
        int j = (i % 256) / 32;
        float d = exact::from_half(blocks::u16_at(b)) * (float)scale[j];
        float m = exact::from_half(blocks::u16_at(b + 2)) * (float)minimum[j];
        return d * (float)blocks::q4_k_code(b + 16, i % 256) - m;
    }
    case TensorType::Q6_K: {
        const uint8_t *b = row + (size_t)(i / 256) * blocks::Q6_K_BYTES;
        float d = exact::from_half(blocks::u16_at(b + 208)) * (float)((const int8_t *)b)[192 + (i % 256) / 16];
        return d * (float)(blocks::q6_k_code(b, i % 256) - 32);
    }
    }
    return 0.0f;
}

} // namespace

size_t row_bytes(TensorType type, int columns) {
    TypeFacts f = facts(type);
    if (columns <= 0 || columns % f.block_columns)
        refuse("columns: a multiple of " + std::to_string(f.block_columns) + " expected, found " +
               std::to_string(columns));
    return (size_t)(columns / f.block_columns) * f.block_bytes;
}

bool is_quantised(TensorType type) { return facts(type).block_columns > 1; }

TileFn tile_of(TensorType type) {
    const Kernels &k = kernels();
    switch (type) {
    case TensorType::F32: return k.f32;
    case TensorType::F16: return k.f16;
    case TensorType::BF16: return k.bf16;
    case TensorType::Q8_0: return k.q8_0;
    case TensorType::Q4_K: return k.q4_k;
    case TensorType::Q6_K: return k.q6_k;
    }
    return nullptr;
}

void dequantise_row(TensorType type, const uint8_t *row, int columns, float *out) {
    for (int i = 0; i < columns; i++) out[i] = weight_at(type, row, i);
}

Weights::Weights(In<uint8_t, 1> bytes, int type_id, long n, int r, int c)
    : data(bytes.data()), type((TensorType)type_id), matrices(n), rows(r), columns(c), stride(row_bytes(type, c)),
      owner(nb::cast(bytes)) {
    expect(n > 0 && r > 0, "matrices and rows: 1 or more expected");
    size_t per_matrix = 0, total = 0;
    expect(!__builtin_mul_overflow((size_t)r, stride, &per_matrix) &&
               !__builtin_mul_overflow((size_t)n, per_matrix, &total),
           "matrices x rows x row bytes does not fit 64 bits");
    expect_equal("data: bytes", bytes.shape(0), total);
}

void bind_weights(nb::module_ &m) {
    nb::class_<Weights>(m, "Weights")
        .def(nb::init<In<uint8_t, 1>, int, long, int, int>(), nb::arg("data").noconvert(), "type"_a, "matrices"_a,
             "rows"_a, "columns"_a)
        .def_ro("matrices", &Weights::matrices)
        .def_ro("rows", &Weights::rows)
        .def_ro("columns", &Weights::columns)
        .def_prop_ro("type", [](const Weights &w) { return (int)w.type; })
        .def_prop_ro("quantised", &Weights::quantised)
        .def(
            "dequantise",
            [](const Weights &w, long matrix, In<int32_t, 1> rows) {
                expect(matrix >= 0 && matrix < w.matrices, "matrix: out of range");
                for (size_t i = 0; i < rows.shape(0); i++) expect_range("rows", rows(i), 0, w.rows - 1);
                NewArray<float> out({rows.shape(0), (size_t)w.columns});
                {
                    nb::gil_scoped_release release;
                    for (size_t i = 0; i < rows.shape(0); i++)
                        dequantise_row(w.type, w.row(matrix, rows(i)), w.columns, out.data + i * w.columns);
                }
                return out.object;
            },
            "matrix"_a, nb::arg("rows").noconvert());
}
