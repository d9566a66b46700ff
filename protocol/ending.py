"""How a process of a cluster ends that cannot go on: by its exit code, and with why as its last words."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from protocol.errors import ExpertmeshError

log = logging.getLogger(__name__)


def exit_code(run: Callable[[], object], who: str) -> int:
    """Run `who` to its end: 0, 2 if it cannot do what it was asked to, or 1 if it fails; stderr then ends with why."""
    try:
        run()
    except Exception as error:
        code, reason = why(error, who)
        last_words(reason)
        return code
    return 0


def why(error: Exception, who: str) -> tuple[int, str]:
    """The exit code of `who`, and the reason: 2 for what cannot be done as it was asked, 1 for a failure."""
    if isinstance(error, ExpertmeshError):
        return 2, str(error)
    log.debug("%s failed", who, exc_info=error)
    return 1, f"{type(error).__name__}: {error}"


def last_words(reason: str) -> None:
    """Say on stderr why a process ends, in one line."""
    sys.stderr.write(f"error: {' '.join(reason.split())}\n")
