"""What tests with a real GPU share: the device, or the reason why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from native import cuda

NAME = "cuda:0"
REQUIRED = "EXPERTMESH_TEST_GPU"
"""Set to 1 where there must be a GPU: without one the tests then fail, and are not skipped."""


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cuda.Device]:
    """The first GPU; compiled kernels are kept in a temporary folder, unless CUPY_CACHE_DIR names one."""
    with pytest.MonkeyPatch.context() as patch:
        if "CUPY_CACHE_DIR" not in os.environ:
            patch.setenv("CUPY_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        try:
            device = cuda.open_device(NAME)
        except cuda.DeviceError as error:
            if os.environ.get(REQUIRED) == "1":
                raise
            pytest.skip(f"a GPU is needed: {error}")
        device.use()
        yield device
