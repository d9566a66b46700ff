#include "weights.h"

#include <vector>

#include "packed.h"
#include "packed_layout.h"
#include "with_type.h"

namespace {

struct TypeFacts {
    int block_columns, block_bytes;
};

TypeFacts facts(TensorType type) {
    return with_type(type, [](auto kind) { return TypeFacts{kind.COLUMNS, kind.BYTES}; });
}

template <class Type> void float_row(const uint8_t *row, int columns, float *out) {
    for (int i = 0; i < columns; i++) out[i] = Type::weight(row, i);
}

template <class Type> float weight(Type, const uint8_t *block, int j, int lane) {
    float scaled = Type::scale(block, j) * (float)Type::integer(block, j, lane);
    if constexpr (Type::HAS_MINIMUM) return scaled + Type::minimum(block, j);
    return scaled;
}

float weight(blocks::Q6_K q, const uint8_t *block, int j, int lane) { // scale by scale: zeros keep the sign of both
    return q.scale(block, j) * (float)q.scale16(block, j, lane) * (float)q.centred(block, j, lane);
}

template <class Type> void quantised_row(const uint8_t *row, int columns, float *out) {
    constexpr int per_block = Type::COLUMNS / exact::SUB;
    for (int s = 0; s < columns / exact::SUB; s++) {
        const uint8_t *block = row + (size_t)(s / per_block) * Type::BYTES;
        for (int i = 0; i < exact::SUB; i++) out[exact::SUB * s + i] = weight(Type{}, block, s % per_block, i);
    }
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

template <class Fn> Fn of_type(const OfTypes<Fn> &kernels, TensorType type) {
    switch (type) {
    case TensorType::Q4_0: return kernels.q4_0;
    case TensorType::Q4_1: return kernels.q4_1;
    case TensorType::Q5_0: return kernels.q5_0;
    case TensorType::Q5_1: return kernels.q5_1;
    case TensorType::Q8_0: return kernels.q8_0;
    case TensorType::Q4_K: return kernels.q4_k;
    case TensorType::Q5_K: return kernels.q5_k;
    case TensorType::Q6_K: return kernels.q6_k;
    default: return nullptr;
    }
}

TileFn tile_of(TensorType type) {
    const Kernels &k = kernels();
    switch (type) {
    case TensorType::F32: return k.f32;
    case TensorType::F16: return k.f16;
    case TensorType::BF16: return k.bf16;
    default: return of_type(k.rows, type);
    }
}

PackedTileFn packed_tile_of(TensorType type) { return of_type(kernels().packed, type); }

void dequantise_row(TensorType type, const uint8_t *row, int columns, float *out) {
    with_type(type, [=](auto kind) {
        using Type = decltype(kind);
        if constexpr (Type::COLUMNS == 1)
            float_row<Type>(row, columns, out);
        else
            quantised_row<Type>(row, columns, out);
    });
}

Weights::Weights(In<uint8_t, 1> given, int type_id, long n, int r, int c, bool interleaved)
    : type((TensorType)type_id), matrices(n), rows(r), columns(c), packed(interleaved), stride(row_bytes(type, c)),
      bytes_(given) {
    expect(!packed || quantised(), "packed: only quantised types are");
    expect(n > 0 && r > 0, "matrices and rows: 1 or more expected");
    size_t per_matrix = 0, total = 0;
    expect(!__builtin_mul_overflow((size_t)r, stride, &per_matrix) &&
               !__builtin_mul_overflow((size_t)n, per_matrix, &total),
           "matrices x rows x row bytes does not fit 64 bits");
    expect_equal("data: bytes", bytes_.shape(0), total);
    at_ = std::make_unique<std::atomic<const uint8_t *>[]>((size_t)n);
    for (long matrix = 0; matrix < n; matrix++) at_[(size_t)matrix] = in_file(matrix);
    copies_.resize((size_t)n);
}

long Weights::checked(long matrix) const {
    expect_range("matrix", matrix, 0, matrices - 1);
    return matrix;
}

void Weights::place(long matrix, In<uint8_t, 1> copy) {
    expect_equal("copy: bytes", copy.shape(0), (size_t)rows * stride);
    at_[(size_t)checked(matrix)] = copy.data();
    copies_[(size_t)matrix] = nb::borrow(copy.array());
}

void Weights::unplace(long matrix) {
    at_[(size_t)checked(matrix)] = in_file(matrix);
    copies_[(size_t)matrix] = nb::object();
}

void Weights::dequantise(long matrix, int r, float *out) const {
    if (!in_groups(r)) return dequantise_row(type, row(matrix, r), columns, out);
    std::vector<uint8_t> plain(stride);
    unpack_row(type, row(matrix, r - r % PACKED_ROWS), r % PACKED_ROWS, columns, plain.data());
    dequantise_row(type, plain.data(), columns, out);
}

void bind_weights(nb::module_ &m) {
    nb::class_<Weights>(m, "Weights")
        .def(nb::init<In<uint8_t, 1>, int, long, int, int, bool>(), "data"_a, "type"_a, "matrices"_a, "rows"_a,
             "columns"_a, "packed"_a = false)
        .def_ro("matrices", &Weights::matrices)
        .def_ro("rows", &Weights::rows)
        .def_ro("columns", &Weights::columns)
        .def_ro("packed", &Weights::packed)
        .def_prop_ro("type", [](const Weights &w) { return (int)w.type; })
        .def_prop_ro("quantised", &Weights::quantised)
        .def("place", &Weights::place, "matrix"_a, "copy"_a)
        .def("unplace", &Weights::unplace, "matrix"_a)
        .def(
            "placed", [](const Weights &w, long matrix) { return w.placed(w.checked(matrix)); }, "matrix"_a)
        .def(
            "dequantise",
            [](const Weights &w, long matrix, In<int32_t, 1> rows) {
                w.checked(matrix);
                for (size_t i = 0; i < rows.shape(0); i++) expect_range("rows", rows(i), 0, w.rows - 1);
                NewArray<float> out({rows.shape(0), (size_t)w.columns});
                {
                    nb::gil_scoped_release release;
                    for (size_t i = 0; i < rows.shape(0); i++) w.dequantise(matrix, rows(i), out.data + i * w.columns);
                }
                return out.object;
            },
            "matrix"_a, "rows"_a);
}
