"""`coordinator.main` on the emulated device, so that the whole GPU path runs where there is no GPU."""

from __future__ import annotations

import sys

from emulated_device import emulated_device

import coordinator.main
from native import cuda

if __name__ == "__main__":
    vars(cuda)["open_device"] = emulated_device
    sys.exit(coordinator.main.main())
