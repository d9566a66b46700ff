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
    except ExpertmeshError as error:
        return _tell(str(error), 2)
    except Exception as error:
        log.debug("%s failed", who, exc_info=True)
        return _tell(f"{type(error).__name__}: {error}", 1)
    return 0


def _tell(reason: str, code: int) -> int:
    sys.stderr.write(f"error: {' '.join(reason.split())}\n")
    return code
