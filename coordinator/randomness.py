"""Random numbers keyed by (seed, position), so that sampled text is the same alone, batched, or with drafts.

Philox4x64-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011; the generator of
the Random123 library): a bijection of a 256-bit counter under a 128-bit key, in integer arithmetic only. There is no
state to carry: any position can be asked for at any time, in any order, anywhere, and gives the same number.
"""

from __future__ import annotations

WORD_LIMIT = 1 << 64
"""Seeds and positions are unsigned 64-bit numbers."""

_WORD = WORD_LIMIT - 1
_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # golden ratio, sqrt(3) - 1: added to the key after each round

Words = tuple[int, int, int, int]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Four random 64-bit words for a counter of four and a key of two, each unsigned 64-bit."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (right >> 64) ^ c1 ^ k0, right & _WORD, (left >> 64) ^ c3 ^ k1, left & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), a multiple of 2**-53, for this seed and position in the sequence.

    ValueError unless both are unsigned 64-bit numbers.
    """
    for name, value in (("seed", seed), ("position", position)):
        if not 0 <= value < WORD_LIMIT:
            raise ValueError(f"{name} {value} is not in 0..{WORD_LIMIT - 1}")
    word = philox((position, 0, 0, 0), (seed, 0))[0]
    return (word >> 11) * 2.0**-53
