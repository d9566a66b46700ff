from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.randomness import WORD_LIMIT, philox, uniform

WORDS = st.integers(0, WORD_LIMIT - 1)
ONES = WORD_LIMIT - 1

KNOWN_ANSWERS = {  # tests/kat_vectors of Random123
    ((0, 0, 0, 0), (0, 0)): "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
    ((ONES, ONES, ONES, ONES), (ONES, ONES)): "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
    ): "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
}


@pytest.mark.parametrize(("key", "answer"), KNOWN_ANSWERS.items())
def test_philox_gives_the_published_answers(
    key: tuple[tuple[int, int, int, int], tuple[int, int]], answer: str
) -> None:
    assert " ".join(f"{word:016x}" for word in philox(*key)) == answer


@given(st.integers(1, WORD_LIMIT - 1), WORDS, WORDS)
def test_philox_is_numpys(counter: int, first: int, second: int) -> None:
    theirs = np.random.Philox(key=first | second << 64, counter=counter - 1)  # NumPy counts up before it draws
    assert list(philox((counter, 0, 0, 0), (first, second))) == theirs.random_raw(4).tolist()


def test_uniform_gives_the_numbers_it_has_always_given() -> None:
    golden = {
        (0, 0): "0x1.6554d9eca3630p-4",
        (0, 1): "0x1.7a5d3204726c0p-7",
        (1, 0): "0x1.96fd4e899e337p-1",
        (42, 1000): "0x1.e5882cf9bb2e8p-3",
        (ONES, ONES): "0x1.2a374e36fb190p-1",
    }
    assert {key: uniform(*key).hex() for key in golden} == golden


@given(WORDS, WORDS)
def test_uniform_lies_in_range_and_is_a_function_of_its_arguments(seed: int, position: int) -> None:
    number = uniform(seed, position)
    assert 0 <= number < 1
    assert number == uniform(seed, position)


def test_neighbours_have_nothing_in_common() -> None:
    numbers = [uniform(seed, position) for seed in range(50) for position in range(50)]
    assert len(set(numbers)) == len(numbers)
    assert abs(np.mean(numbers) - 0.5) < 0.02
    by_seed = np.array(numbers).reshape(50, 50)
    assert abs(np.corrcoef(by_seed[:-1].ravel(), by_seed[1:].ravel())[0, 1]) < 0.06
    assert abs(np.corrcoef(by_seed[:, :-1].ravel(), by_seed[:, 1:].ravel())[0, 1]) < 0.06


@pytest.mark.parametrize(("seed", "position"), [(-1, 0), (WORD_LIMIT, 0), (0, -1), (0, WORD_LIMIT)])
def test_what_does_not_fit_64_bits_is_refused(seed: int, position: int) -> None:
    with pytest.raises(ValueError, match="not in 0"):
        uniform(seed, position)
