"""`peer_gpu.main` on the emulated device, so that a peer can join a cluster where there is no GPU."""

from __future__ import annotations

import sys

from emulated_device import emulated_device

import peer_gpu.main
from native import cuda

if __name__ == "__main__":
    vars(cuda)["open_device"] = emulated_device
    sys.exit(peer_gpu.main.main())
