#include "packed.h"

#include <type_traits>

#include "packed_layout.h"
#include "with_type.h"

namespace {

using packed::DWORDS;
using packed::Fields;

// --- what a group has in another order than a row: each is its own inverse --------------------------------------

// 32 bytes of nibbles: low and high ones of 32 columns each, or columns 0..15 and 16..31 of two sub-blocks.
void swap_nibbles(uint8_t t[32]) {
    for (int i = 0; i < 16; i++) {
        uint8_t first = t[i], second = t[i + 16];
        t[i] = (uint8_t)((first & 15) | (second << 4));
        t[i + 16] = (uint8_t)((first >> 4) | (second & 0xf0));
    }
}

uint64_t swap_bits(uint64_t x, int distance, uint64_t mask) {
    uint64_t moved = (x ^ (x >> distance)) & mask;
    return x ^ moved ^ (moved << distance);
}

// Bit i of byte k becomes bit k of byte i.
uint64_t transpose_bits(uint64_t x) {
    x = swap_bits(x, 7, 0x00aa00aa00aa00aa);
    x = swap_bits(x, 14, 0x0000cccc0000cccc);
    return swap_bits(x, 28, 0x00000000f0f0f0f0);
}

// Pair i of byte k becomes pair k of byte i, of four bytes.
uint32_t transpose_pairs(uint32_t x) {
    uint64_t y = swap_bits(x, 6, 0x00cc00cc);
    return (uint32_t)swap_bits(y, 12, 0x0000f0f0);
}

// --- moving -----------------------------------------------------------------------------------------------------

// Moves the pieces of row `r` to or from a group.
template <bool PACK> struct Mover {
    using Row = std::conditional_t<PACK, const uint8_t, uint8_t>;
    using Group = std::conditional_t<PACK, uint8_t, const uint8_t>;
    int r;

    void piece(Row *row, Group *group, int bytes) const {
        if constexpr (PACK)
            memcpy(group + r * bytes, row, (size_t)bytes);
        else
            memcpy(row, group + r * bytes, (size_t)bytes);
    }

    void dwords(Row *row, Group *group, int count) const {
        for (int i = 0; i < count; i++) piece(row + 4 * i, group + DWORDS * i, 4);
    }

    // 32 columns: fp16 numbers, perhaps 32 high bits, then nibbles or bytes.
    template <class Type> void block32(Row *row, Group *group) const {
        using At = Fields<Type>;
        constexpr int numbers = requires { At::MINIMUM; } ? 4 : 2;
        piece(row, group, 2);
        if constexpr (numbers == 4) piece(row + 2, group + At::MINIMUM, 2);
        if constexpr (requires { At::HIGH; }) high_bits(row + numbers, group + At::HIGH);
        constexpr int codes = Type::BYTES - numbers - (requires { At::HIGH; } ? 4 : 0);
        dwords(row + Type::BYTES - codes, group + At::CODES, codes / 4);
    }

    // Bit i of 32 is column i's; in a group bit q of byte b is column 4q + b's.
    void high_bits(Row *row, Group *group) const {
        auto spread = [](uint32_t from, bool pack) {
            uint32_t to = 0;
            for (int i = 0; i < 32; i++) {
                int place = 8 * (i % 4) + i / 4;
                to |= pack ? (from >> i & 1) << place : (from >> place & 1) << i;
            }
            return to;
        };
        uint32_t bits;
        if constexpr (PACK) {
            memcpy(&bits, row, 4);
            bits = spread(bits, true);
            memcpy(group + 4 * r, &bits, 4);
        } else {
            memcpy(&bits, group + 4 * r, 4);
            bits = spread(bits, false);
            memcpy(row, &bits, 4);
        }
    }

    // 32 bytes of a row hold one sub-block low and another one high.
    void two_subs(Row *row, Group *low, Group *high) const {
        uint8_t t[32];
        if constexpr (PACK) {
            memcpy(t, row, 32);
            swap_nibbles(t);
        }
        dwords(t, low, 4);
        dwords(t + 16, high, 4);
        if constexpr (!PACK) {
            swap_nibbles(t);
            memcpy(row, t, 32);
        }
    }

    // fp16 d and dmin, 12 bytes of scales and minimums.
    template <class Type> void six_bit_head(Row *row, Group *group) const {
        piece(row, group, 2);
        piece(row + 2, group + Fields<Type>::DMIN, 2);
        dwords(row + 4, group + Fields<Type>::SCALES, 3);
    }

    void block(blocks::Q4_K, Row *row, Group *group) const {
        using At = Fields<blocks::Q4_K>;
        six_bit_head<blocks::Q4_K>(row, group);
        Group *codes = group + At::HEAD + At::CODES;
        for (int k = 0; k < 4; k++) two_subs(row + 16 + 32 * k, codes + 2 * k * At::SUB, codes + (2 * k + 1) * At::SUB);
    }

    void block(blocks::Q5_K, Row *row, Group *group) const {
        using At = Fields<blocks::Q5_K>;
        six_bit_head<blocks::Q5_K>(row, group);
        Group *codes = group + At::HEAD + At::CODES;
        for (int k = 0; k < 4; k++) two_subs(row + 48 + 32 * k, codes + 2 * k * At::SUB, codes + (2 * k + 1) * At::SUB);
        for (int b = 0; b < 4; b++) { // column 4q + b: byte q here is sub-block j's there
            uint8_t t[8];
            auto in_row = [=](int q) { return row + 16 + 4 * q + b; };
            auto in_group = [=, this](int j) { return group + At::HEAD + At::HIGH + j * At::SUB + 4 * r + b; };
            turn<uint64_t>(t, in_row, in_group, transpose_bits);
        }
    }

    void block(blocks::Q6_K, Row *row, Group *group) const {
        using At = Fields<blocks::Q6_K>;
        piece(row + 208, group, 2);
        for (int j = 0; j < 8; j++) piece(row + 192 + 2 * j, group + At::SCALES + j * packed::HALVES, 2);
        Group *subs = group + At::HEAD;
        for (int h = 0; h < 2; h++) {
            Group *codes = subs + 4 * h * At::SUB + At::CODES;
            for (int s = 0; s < 2; s++) two_subs(row + 64 * h + 32 * s, codes + s * At::SUB, codes + (s + 2) * At::SUB);
            for (int v = 0; v < 2; v++)
                for (int b = 0; b < 4; b++) { // column 16v + 4t + b: byte t here is sub-block 4h + j's there
                    uint8_t t[4];
                    auto in_row = [=](int i) { return row + 128 + 32 * h + 16 * v + 4 * i + b; };
                    auto in_group = [=, this](int j) {
                        return subs + (4 * h + j) * At::SUB + At::HIGH + v * DWORDS + 4 * r + b;
                    };
                    turn<uint32_t>(t, in_row, in_group, transpose_pairs);
                }
        }
    }

    template <class Type> void block(Type, Row *row, Group *group) const { block32<Type>(row, group); }

    // Bytes of one side, transposed as one `Word`, are those of the other.
    template <class Word, class InRow, class InGroup>
    static void turn(uint8_t *t, InRow in_row, InGroup in_group, Word (*transpose)(Word)) {
        constexpr int n = sizeof(Word);
        for (int i = 0; i < n; i++) {
            if constexpr (PACK)
                t[i] = *in_row(i);
            else
                t[i] = *in_group(i);
        }
        Word word;
        memcpy(&word, t, n);
        word = transpose(word);
        memcpy(t, &word, n);
        for (int i = 0; i < n; i++) {
            if constexpr (PACK)
                *in_group(i) = t[i];
            else
                *in_row(i) = t[i];
        }
    }
};

template <bool PACK>
void move_row(TensorType type, typename Mover<PACK>::Row *row, int columns, typename Mover<PACK>::Group *group, int r) {
    with_type(type, [=](auto kind) {
        using Type = decltype(kind);
        if constexpr (Type::COLUMNS > 1)
            for (int block = 0; block < columns / Type::COLUMNS; block++)
                Mover<PACK>{r}.block(kind, row + (size_t)block * Type::BYTES,
                                     group + (size_t)block * packed::GROUP * Type::BYTES);
    });
}

// A whole matrix, either way: `move(row, group, r)` for rows of groups, a copy for those after the last group.
template <class Move>
void move_matrix(int type, int rows, int columns, In<uint8_t, 1> source, Out<uint8_t, 1> out, Move move) {
    expect(is_quantised((TensorType)type), "type: a quantised one expected");
    size_t stride = row_bytes((TensorType)type, columns);
    expect(rows > 0, "rows: 1 or more expected");
    expect_equal("source: bytes", source.shape(0), stride * (size_t)rows);
    expect_equal("out: bytes", out.shape(0), source.shape(0));
    expect(out.data() + out.shape(0) <= source.data() || source.data() + source.shape(0) <= out.data(),
           "out: must not overlap source");
    nb::gil_scoped_release release;
    int in_groups = rows / packed::GROUP * packed::GROUP;
    for (int r = 0; r < in_groups; r++) {
        size_t row = (size_t)r * stride, group = (size_t)(r - r % packed::GROUP) * stride;
        move(source.data(), out.data(), row, group, r % packed::GROUP);
    }
    size_t done = (size_t)in_groups * stride;
    memcpy(out.data() + done, source.data() + done, source.shape(0) - done);
}

} // namespace

void pack_row(TensorType type, const uint8_t *row, int columns, uint8_t *group, int r) {
    move_row<true>(type, row, columns, group, r);
}

void unpack_row(TensorType type, const uint8_t *group, int r, int columns, uint8_t *row) {
    move_row<false>(type, row, columns, group, r);
}

void bind_packed(nb::module_ &m) {
    m.attr("PACKED_ROWS") = packed::GROUP;
    m.def(
        "pack_rows",
        [](int type, int rows, int columns, In<uint8_t, 1> source, Out<uint8_t, 1> out) {
            move_matrix(type, rows, columns, source, out,
                        [=](const uint8_t *from, uint8_t *to, size_t row, size_t group, int r) {
                            pack_row((TensorType)type, from + row, columns, to + group, r);
                        });
        },
        "type"_a, "rows"_a, "columns"_a, "source"_a, "out"_a);
    m.def(
        "unpack_rows",
        [](int type, int rows, int columns, In<uint8_t, 1> source, Out<uint8_t, 1> out) {
            move_matrix(type, rows, columns, source, out,
                        [=](const uint8_t *from, uint8_t *to, size_t row, size_t group, int r) {
                            unpack_row((TensorType)type, from + group, r, columns, to + row);
                        });
        },
        "type"_a, "rows"_a, "columns"_a, "source"_a, "out"_a);
}
