"""Takes system calls away from this process, for good: what an older kernel, or a container's filter, does not have."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

SYSTEM_CALLS = {
    "x86_64": {"madvise": 28, "io_uring_setup": 425, "cachestat": 451},
    "aarch64": {"madvise": 233, "io_uring_setup": 425, "cachestat": 451},
}
_LOAD, _SKIP_UNLESS_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2


def block(name: str, error: int = errno.ENOSYS, third: int | None = None) -> None:
    """Let calls of this name fail with `error`: all, or those with this third argument. OSError if it cannot be."""
    tests = [(0, SYSTEM_CALLS[platform.machine()][name])]  # (offset in seccomp_data, value)
    if third is not None:
        tests.append((16 + 2 * 8, third))
    lines = []
    for i, (offset, value) in enumerate(tests):
        to_the_end = 2 * (len(tests) - 1 - i) + 1
        lines += [
            struct.pack("HBBI", _LOAD, 0, 0, offset),
            struct.pack("HBBI", _SKIP_UNLESS_EQUAL, 0, to_the_end, value),
        ]
    lines += [struct.pack("HBBI", _RETURN, 0, 0, _ERROR | error), struct.pack("HBBI", _RETURN, 0, 0, _ALLOW)]
    text = ctypes.create_string_buffer(b"".join(lines))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(text)))
    library = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, program, 0, 0)):
        if library.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")
