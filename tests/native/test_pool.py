"""The thread pool: every task once, whatever wakes when; and it lets other processes run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from random_weights import random_rows

import native


def product(pool: native.Pool, weights: native.Weights, x: np.ndarray) -> np.ndarray:
    out = np.full((len(x), weights.rows), np.nan, np.float32)
    native.matmul(pool, weights, 0, native.Rows(x), out)
    return out


@pytest.mark.timeout(120)
def test_thousands_of_batches_of_random_size_miss_no_task() -> None:
    rng = np.random.default_rng(1)
    pools = [native.Pool(n) for n in (2, 5)]
    for rows in rng.integers(1, 200, 1500):
        weights = native.Weights(random_rows(rng, 8, int(rows), 32), 8, 1, int(rows), 32)
        x = rng.standard_normal((1, 32)).astype(np.float32)
        expected = product(native.Pool(1), weights, x)
        for pool in pools:
            np.testing.assert_array_equal(product(pool, weights, x), expected)


@pytest.mark.timeout(60)
def test_two_python_threads_may_share_a_pool() -> None:
    rng, pool = np.random.default_rng(2), native.Pool(3)
    weights = native.Weights(random_rows(rng, 12, 64, 256), 12, 1, 64, 256)
    inputs = rng.standard_normal((2, 1, 256)).astype(np.float32)
    expected = [product(native.Pool(1), weights, x) for x in inputs]
    wrong: list[int] = []

    def use(which: int) -> None:
        for _ in range(300):
            if not np.array_equal(product(pool, weights, inputs[which]), expected[which]):
                wrong.append(which)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.timeout(60)
def test_an_idle_pool_uses_no_processor_time() -> None:
    rng, pool = np.random.default_rng(3), native.Pool(4)
    weights = native.Weights(random_rows(rng, 8, 256, 256), 8, 1, 256, 256)
    product(pool, weights, np.ones((1, 256), np.float32))
    woken = threading.Event()
    woken.wait(0.05)  # the spinning is over after 60 us
    before = time.process_time()
    woken.wait(0.3)
    assert time.process_time() - before < 0.15


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_absurd_thread_counts_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match="threads"):
        native.Pool(threads)


LIMITED = """
import resource, native
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
try:
    native.Pool(1000)
except OSError as error:
    print(error)
print(native.Pool(3).threads)
"""


def test_threads_that_cannot_be_had_are_an_error_and_none_is_left() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-P", "-c", LIMITED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    error, threads = done.stdout.splitlines()
    assert re.fullmatch(r"1000 threads cannot be started, \d+ can: Resource temporarily unavailable", error)
    assert threads == "3"


@pytest.mark.timeout(60)
def test_a_pool_leaves_no_thread_behind() -> None:
    before = threads_here()
    pool = native.Pool(6)
    assert len(threads_here() - before) == 5
    del pool
    deadline = time.monotonic() + 10  # a joined thread's entry may outlive the join by some milliseconds
    while threads_here() - before and time.monotonic() < deadline:
        os.sched_yield()
    assert not threads_here() - before


def threads_here() -> set[str]:
    return set(os.listdir("/proc/self/task"))
