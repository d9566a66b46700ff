"""Leases of cores, with numbers of cores that no machine has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from coordinator.cores import CoreLeases, usable_cores

FAR = 10**6 * (1 + os.getpid() % 1000)
CORES = range(FAR, FAR + 4)

HOLDER = """
import sys
from coordinator.cores import CoreLeases
leases = CoreLeases()
print(leases.take(2, range(int(sys.argv[1]), int(sys.argv[1]) + 2)), flush=True)
sys.stdin.read()
"""


def test_two_launchers_never_have_the_same_cores() -> None:
    with CoreLeases() as one, CoreLeases() as two:
        assert one.take(2, CORES) == tuple(CORES[:2])
        assert two.take(2, CORES) == tuple(CORES[2:])


def test_too_few_are_none_and_all_are_given_back() -> None:
    with CoreLeases() as one, CoreLeases() as two:
        assert one.take(3, CORES) == tuple(CORES[:3])
        assert two.take(2, CORES) == ()
        assert one.take(0, CORES) == ()
    with CoreLeases() as three:
        assert three.take(4, CORES) == tuple(CORES)


@pytest.mark.timeout(30)
def test_a_killed_holder_holds_nothing() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(FAR)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == str(tuple(CORES[:2]))
        with CoreLeases() as leases:
            assert leases.take(1, CORES[:2]) == ()
            holder.kill()
            holder.wait()
            assert leases.take(2, CORES[:2]) == tuple(CORES[:2])
    finally:
        holder.kill()
        holder.communicate()


def test_the_usable_cores_are_those_of_this_process() -> None:
    assert set(usable_cores()) == os.sched_getaffinity(0)
