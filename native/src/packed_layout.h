// The interleaved form of quantised weights: 16 rows at a time, so that vector lanes are weight rows whatever their
// width. A group of 16 rows takes the bytes of 16 rows, block after block of the type; in the block of a group, a piece
// of n bytes of each row's block is followed by the same piece of the next row. docs/packs.md has the tables.
#pragma once

#include "blocks.h"

namespace packed {
namespace { // a copy for each instruction set, as in blocks.h

constexpr int GROUP = 16;           // rows of a group
constexpr int HALVES = 2 * GROUP;   // bytes of one fp16 number, or two bytes, of each row
constexpr int DWORDS = 4 * GROUP;   // bytes of four columns of each row, or eight nibbles
constexpr int NIBBLES = 4 * DWORDS; // 32 columns: dword k has columns 4k..4k+3 low and 16+4k.. high

// Where what lies in the block of a group: types of 32 columns. HIGH: bit q of byte b is column 4q + b's.
template <class Stored> struct Fields;
template <> struct Fields<blocks::Q4_0> {
    static constexpr int CODES = HALVES;
};
template <> struct Fields<blocks::Q4_1> {
    static constexpr int MINIMUM = HALVES, CODES = 2 * HALVES;
};
template <> struct Fields<blocks::Q5_0> {
    static constexpr int HIGH = HALVES, CODES = HIGH + DWORDS;
};
template <> struct Fields<blocks::Q5_1> {
    static constexpr int MINIMUM = HALVES, HIGH = 2 * HALVES, CODES = HIGH + DWORDS;
};
template <> struct Fields<blocks::Q8_0> {
    static constexpr int CODES = HALVES;
};

// Types of 256 columns: a head, then eight sub-blocks of SUB bytes.
template <> struct Fields<blocks::Q4_K> {
    static constexpr int DMIN = HALVES, SCALES = 2 * HALVES, HEAD = SCALES + 3 * DWORDS;
    static constexpr int CODES = 0, SUB = NIBBLES;
};
template <> struct Fields<blocks::Q5_K> {
    static constexpr int DMIN = HALVES, SCALES = 2 * HALVES, HEAD = SCALES + 3 * DWORDS;
    static constexpr int HIGH = 0, CODES = DWORDS, SUB = DWORDS + NIBBLES;
};
template <> struct Fields<blocks::Q6_K> { // HIGH: bits 2t, 2t+1 of byte b of dword v are column 16v + 4t + b's
    static constexpr int SCALES = HALVES, HEAD = SCALES + 8 * HALVES;
    static constexpr int HIGH = 0, CODES = 2 * DWORDS, SUB = 2 * DWORDS + NIBBLES;
};

} // namespace
} // namespace packed
