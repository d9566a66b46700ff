// Tiles of packed weights: lanes are weight rows, activations are broadcast, so no lane ever joins another, and each
// lane's sequence of fp32 operations is docs/arithmetic.md's.
#pragma once

#include "code_lanes.h"
#include "isa_common.h"
#include "kernels.h"
#include "packed_layout.h"

namespace {

using packed::DWORDS;
using packed::Fields;
using packed::GROUP;

// The sub-block j of lanes [h * WIDE, (h + 1) * WIDE) of a block: its scales and codes, decoded.
constexpr int dwords_of(int h) { return 4 * WIDE * h; }
constexpr int halves_of(int h) { return 2 * WIDE * h; }

// code[0..3] from the low nibbles of four dwords, code[4..7] from the high ones.
EM_INLINE void load_nibbles(const uint8_t *p, Codes code[8]) {
    const Codes low = all_dwords(0x0f0f0f0f);
    EM_UNROLL for (int k = 0; k < 4; k++) {
        Codes two = load_codes(p + k * DWORDS);
        code[k] = both(two, low);
        code[k + 4] = both(right<4>(two), low);
    }
}

// Bits i of `bits` to the place of 16, for code[i].
EM_INLINE void add_fifth_bits(Codes bits, Codes code[8]) {
    const Codes fifth = all_dwords(0x10101010);
    code[0] = either(code[0], both(left<4>(bits), fifth));
    code[1] = either(code[1], both(left<3>(bits), fifth));
    code[2] = either(code[2], both(left<2>(bits), fifth));
    code[3] = either(code[3], both(left<1>(bits), fifth));
    code[4] = either(code[4], both(bits, fifth));
    code[5] = either(code[5], both(right<1>(bits), fifth));
    code[6] = either(code[6], both(right<2>(bits), fifth));
    code[7] = either(code[7], both(right<3>(bits), fifth));
}

// Pairs of bits t of `bits` to the place of 16 and 32, for code[t].
EM_INLINE void add_pairs(Codes bits, Codes code[4]) {
    const Codes pair = all_dwords(0x30303030);
    code[0] = either(code[0], both(left<4>(bits), pair));
    code[1] = either(code[1], both(left<2>(bits), pair));
    code[2] = either(code[2], both(bits, pair));
    code[3] = either(code[3], both(right<2>(bits), pair));
}

// One activation's sub-block.
struct Sub {
    const int8_t *codes;
    int32_t sums16; // two of them
    float sum;
};

template <class Stored> struct Packed;

// Types of 32 columns: `subs` blocks follow each other.
template <class Stored> struct Packed32 {
    static constexpr int SUB = GROUP * Stored::BYTES;
    struct Head {
        Lanes d[8], minimum[8];
    };
    EM_INLINE void head(const uint8_t *block, int subs, int h, Head &out) {
        for (int j = 0; j < subs; j++) {
            out.d[j] = halves_at(block + j * SUB + halves_of(h));
            if constexpr (requires { Fields<Stored>::MINIMUM; })
                out.minimum[j] = halves_at(block + j * SUB + Fields<Stored>::MINIMUM + halves_of(h));
        }
    }
    EM_INLINE void codes(const uint8_t *block, int j, int h, Codes code[8]) {
        const uint8_t *sub = block + j * SUB + dwords_of(h);
        load_nibbles(sub + Fields<Stored>::CODES, code);
        if constexpr (requires { Fields<Stored>::HIGH; }) add_fifth_bits(load_codes(sub + Fields<Stored>::HIGH), code);
    }
};

// --- types: `head` runs once per block of 256 columns, `codes` per sub-block; per activation `half` gives the dots of
// columns 0..15 (i = 0) or 16..31 with code[4i..], and `part` the sub-block's part of the sum, made of both.
// BY_HALVES: whether to take all activations through one half before the other pays (docs/results.md) ----------------

struct Below16 {
    static constexpr bool BY_HALVES = true;
    template <class Head> EM_INLINE Codes half(const Head &, int, int i, const Codes code[8], const Sub &x) {
        return half_below16(code + 4 * i, x.codes + 16 * i);
    }
};
struct Below32 {
    static constexpr bool BY_HALVES = false;
    template <class Head> EM_INLINE Codes half(const Head &, int, int i, const Codes code[8], const Sub &x) {
        return half_below32(code + 4 * i, x.codes + 16 * i);
    }
};

template <int MIDDLE, class Head> EM_INLINE Lanes centred_part(const Head &head, int j, Codes dots, const Sub &x) {
    Codes middle = dot_pairs(all_dwords(x.sums16), all_dwords(int16_twice(MIDDLE)));
    return times(head.d[j], to_floats(less32(dots, middle)));
}

template <class Head> EM_INLINE Lanes affine_part(const Head &head, int j, Codes dots, const Sub &x) {
    return fused(head.minimum[j], all(x.sum), times(head.d[j], to_floats(dots)));
}

template <> struct Packed<blocks::Q4_0> : Packed32<blocks::Q4_0>, Below16 {
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        return centred_part<8>(head, j, whole_below16(first, second), x);
    }
};

template <> struct Packed<blocks::Q4_1> : Packed32<blocks::Q4_1>, Below16 {
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        return affine_part(head, j, whole_below16(first, second), x);
    }
};

template <> struct Packed<blocks::Q5_0> : Packed32<blocks::Q5_0>, Below32 {
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        return centred_part<16>(head, j, plus32(first, second), x);
    }
};

template <> struct Packed<blocks::Q5_1> : Packed32<blocks::Q5_1>, Below32 {
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        return affine_part(head, j, plus32(first, second), x);
    }
};

template <> struct Packed<blocks::Q8_0> : Packed32<blocks::Q8_0> {
    static constexpr bool BY_HALVES = false;
    EM_INLINE void codes(const uint8_t *block, int j, int h, Codes code[8]) {
        const uint8_t *sub = block + j * SUB + dwords_of(h) + Fields<blocks::Q8_0>::CODES;
        EM_UNROLL for (int q = 0; q < 8; q++) code[q] = load_codes(sub + q * DWORDS);
    }
    EM_INLINE Codes half(const Head &, int, int i, const Codes code[8], const Sub &x) {
        return half_signed(code + 4 * i, x.codes + 16 * i);
    }
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        return times(head.d[j], to_floats(whole_signed(first, second, x.sums16)));
    }
};

// Q4_K and Q5_K: blocks::SixBitScales of each row, in three dwords.
template <class Stored> struct PackedSixBit {
    using At = Fields<Stored>;
    struct Head {
        Lanes d[8], minimum[8];
    };
    EM_INLINE void head(const uint8_t *block, int, int h, Head &out) {
        const uint8_t *three = block + At::SCALES + dwords_of(h);
        Codes a = load_codes(three), b = load_codes(three + DWORDS), c = load_codes(three + 2 * DWORDS);
        Lanes d = halves_at(block + halves_of(h)), dmin = halves_at(block + At::DMIN + halves_of(h));
        const Codes low6 = all_dwords(0x3f3f3f3f), low4 = all_dwords(0x0f0f0f0f), high2 = all_dwords(0x30303030);
        Codes scale[2] = {both(a, low6), either(both(c, low4), both(right<2>(a), high2))};
        Codes minimum[2] = {both(b, low6), either(both(right<4>(c), low4), both(right<2>(b), high2))};
        EM_UNROLL for (int i = 0; i < 2; i++) {
            four_numbers(d, scale[i], out.d + 4 * i);
            four_numbers(dmin, minimum[i], out.minimum + 4 * i);
        }
        EM_UNROLL for (int j = 0; j < 8; j++) out.minimum[j] = -out.minimum[j];
    }
    EM_INLINE void four_numbers(Lanes times_what, Codes bytes, Lanes out[4]) {
        const Codes byte = all_dwords(0xff);
        out[0] = times(times_what, to_floats(both(bytes, byte)));
        out[1] = times(times_what, to_floats(both(right<8>(bytes), byte)));
        out[2] = times(times_what, to_floats(both(right<16>(bytes), byte)));
        out[3] = times(times_what, to_floats(right<24>(bytes)));
    }
};

template <> struct Packed<blocks::Q4_K> : PackedSixBit<blocks::Q4_K>, Below16 {
    EM_INLINE void codes(const uint8_t *block, int j, int h, Codes code[8]) {
        load_nibbles(block + At::HEAD + j * At::SUB + At::CODES + dwords_of(h), code);
    }
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        return affine_part(head, j, whole_below16(first, second), x);
    }
};

template <> struct Packed<blocks::Q5_K> : PackedSixBit<blocks::Q5_K>, Below32 {
    EM_INLINE void codes(const uint8_t *block, int j, int h, Codes code[8]) {
        const uint8_t *sub = block + At::HEAD + j * At::SUB + dwords_of(h);
        load_nibbles(sub + At::CODES, code);
        add_fifth_bits(load_codes(sub + At::HIGH), code);
    }
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        return affine_part(head, j, plus32(first, second), x);
    }
};

template <> struct Packed<blocks::Q6_K> {
    static constexpr bool BY_HALVES = true;
    using At = Fields<blocks::Q6_K>;
    struct Head {
        Lanes d;
        Codes pairs[8]; // int16 scales of columns 0..15 and 16..31
    };
    EM_INLINE void head(const uint8_t *block, int, int h, Head &out) {
        out.d = halves_at(block + halves_of(h));
        EM_UNROLL for (int j = 0; j < 8; j++) out.pairs[j] =
            int8_pairs(block + At::SCALES + j * packed::HALVES + halves_of(h));
    }
    EM_INLINE void codes(const uint8_t *block, int j, int h, Codes code[8]) {
        const uint8_t *sub = block + At::HEAD + j * At::SUB + dwords_of(h);
        load_nibbles(sub + At::CODES, code);
        add_pairs(load_codes(sub + At::HIGH), code);
        add_pairs(load_codes(sub + At::HIGH + DWORDS), code + 4);
    }
    EM_INLINE Codes half(const Head &head, int j, int i, const Codes code[8], const Sub &x) {
        return half_scaled(code + 4 * i, x.codes + 16 * i, head.pairs[j], i == 1);
    }
    EM_INLINE Lanes part(const Head &head, int j, Codes first, Codes second, const Sub &x) {
        // Each weight is 32 less than its code.
        Codes less = left<5>(dot_pairs(head.pairs[j], all_dwords(x.sums16)));
        return times(head.d, to_floats(less32(plus32(first, second), less)));
    }
};

// --- the tile -----------------------------------------------------------------------------------------------------

// Memory is asked for so far ahead of its use, line by line between the arithmetic: all lines of a block at once would
// fill the buffers that wait for memory, and the arithmetic would wait for them (docs/results.md).
constexpr int AHEAD = 4096;

struct Ahead {
    const uint8_t *next, *end;
    EM_INLINE Ahead of(const uint8_t *group) { return {group + AHEAD, group + AHEAD}; }
    inline void advance(int bytes) {
        for (end += bytes; next < end; next += 64) __builtin_prefetch(next, 0, 1);
    }
};

// Where vectors are half a group wide, loads are what limits several activations: taken half by half, each is broadcast
// once for all lanes of a group, and the registers hold four codes of each vector. Otherwise they hold all eight of
// one.
template <class Type> constexpr bool HALF_BY_HALF = GROUP / WIDE == 2 && Type::BY_HALVES;

// For one activation (known to the compiler) or several.
template <class Stored, bool ONE>
EM_INLINE void packed_acts(const uint8_t *group, int columns, const ActTile &acts, float *out, size_t stride) {
    using Type = Packed<Stored>;
    constexpr int PARTS = GROUP / WIDE, MOST = ONE ? 1 : PACKED_ACTS;
    constexpr int BLOCK_BYTES = GROUP * Stored::BYTES * exact::BLOCK / Stored::COLUMNS;
    const int n = ONE ? 1 : acts.n;
    Lanes total[MOST][PARTS], sum[MOST][PARTS];
    Ahead ahead = Ahead::of(group);
    for (int a = 0; a < n; a++)
        for (int h = 0; h < PARTS; h++) total[a][h] = all(0.0f);
    for (int start = 0; start < columns; start += exact::BLOCK) {
        const int left_over = columns - start,
                  subs = (left_over < exact::BLOCK ? left_over : exact::BLOCK) / exact::SUB;
        typename Type::Head head[PARTS];
        for (int h = 0; h < PARTS; h++) Type::head(group, subs, h, head[h]);
        for (int a = 0; a < n; a++)
            for (int h = 0; h < PARTS; h++) sum[a][h] = all(0.0f);
        EM_ROLLED for (int j = 0; j < subs; j++) { // or else the codes of two would not fit into the registers
            ahead.advance(BLOCK_BYTES / 8);
            const size_t first = (size_t)(start / exact::SUB + j) * n;
            auto sub = [&](int a) {
                const size_t at = first + a;
                return Sub{acts.codes + exact::SUB * at, dword_at(acts.sums16 + 2 * at), acts.sums[at]};
            };
            auto add = [&](int a, int h, const Sub &x, Codes low, Codes high) {
                sum[a][h] = fused(all(acts.scales[first + a]), Type::part(head[h], j, low, high, x), sum[a][h]);
            };
            if constexpr (HALF_BY_HALF<Type> && !ONE) {
                Codes low[MOST][PARTS], code[PARTS][8];
                for (int h = 0; h < PARTS; h++) Type::codes(group, j, h, code[h]);
                for (int a = 0; a < n; a++)
                    for (int h = 0; h < PARTS; h++) low[a][h] = Type::half(head[h], j, 0, code[h], sub(a));
                for (int a = 0; a < n; a++) {
                    const Sub x = sub(a);
                    Codes high[PARTS];
                    for (int h = 0; h < PARTS; h++) high[h] = Type::half(head[h], j, 1, code[h], x);
                    for (int h = 0; h < PARTS; h++) add(a, h, x, low[a][h], high[h]);
                }
            } else {
                for (int h = 0; h < PARTS; h++) {
                    Codes code[8];
                    Type::codes(group, j, h, code);
                    for (int a = 0; a < n; a++) {
                        const Sub x = sub(a);
                        add(a, h, x, Type::half(head[h], j, 0, code, x), Type::half(head[h], j, 1, code, x));
                    }
                }
            }
        }
        for (int a = 0; a < n; a++)
            for (int h = 0; h < PARTS; h++) total[a][h] = plus(total[a][h], sum[a][h]);
        group += BLOCK_BYTES;
    }
    for (int a = 0; a < n; a++)
        for (int h = 0; h < PARTS; h++) store(out + a * stride + h * WIDE, total[a][h]);
}

template <class Stored>
void packed_tile(const uint8_t *group, int columns, const ActTile &acts, float *out, size_t stride) {
    if (acts.n == 1)
        packed_acts<Stored, true>(group, columns, acts, out, stride);
    else
        packed_acts<Stored, false>(group, columns, acts, out, stride);
}

constexpr OfTypes<PackedTileFn> packed_tiles() {
    return {
        .q4_0 = packed_tile<blocks::Q4_0>,
        .q4_1 = packed_tile<blocks::Q4_1>,
        .q5_0 = packed_tile<blocks::Q5_0>,
        .q5_1 = packed_tile<blocks::Q5_1>,
        .q8_0 = packed_tile<blocks::Q8_0>,
        .q4_k = packed_tile<blocks::Q4_K>,
        .q5_k = packed_tile<blocks::Q5_K>,
        .q6_k = packed_tile<blocks::Q6_K>,
    };
}

} // namespace
