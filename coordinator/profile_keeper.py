"""A coordinator's profile and the file it lives in: read at the start, written now and then, and at the end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordinator.profile import Profile, covering
from coordinator.profile_file import read_profile, write_profile
from coordinator.profile_recorder import Recorder
from protocol.errors import ConfigError
from protocol.messages import I32
from protocol.model import Model

log = logging.getLogger(__name__)

IDLE_SAVE_S = 10.0
"""While there is nothing to compute: what is counted and not saved is no older than this."""
BUSY_SAVE_S = 300.0
"""Between two steps of a coordinator that never rests: writing takes the time of a step, on a slow disk."""
OPTION = "--profile"


class Keeper:
    """Counts for one file. Used by one thread, that of the steps."""

    def __init__(self, path: Path, model: Model, clock: Callable[[], float] = time.monotonic) -> None:
        """A file that is not there yet is an empty profile, and is made at once: who cannot write it is told now.

        ConfigError if it cannot be used for this model, or not be written.
        """
        empty = Profile.empty(model)
        profile = read_profile(path, empty) if os.path.exists(path) else empty
        self.rank: I32 | None = profile.rank() if profile.rows else None
        """(layers, experts): the ranking at the start, by which experts are placed; None if nothing was counted."""
        self.recorder = Recorder(profile)
        self._path = path
        self._keep = [file.path for file in model.files.files]
        self._clock = clock
        self._saved_at, self._saved_rows, self._failed = clock(), profile.rows, False
        write_profile(profile, path, option=OPTION, keep=self._keep)
        log.info("profile %s: %d rows seen", path, profile.rows)

    def turn(self, *, idle: bool) -> None:
        """Between steps: save what was counted if it is time for that."""
        if self._clock() - self._saved_at >= (IDLE_SAVE_S if idle else BUSY_SAVE_S):
            self.save()

    def save(self) -> None:
        """Write what was counted, if there is anything new. If that fails it is told, once, and tried again later."""
        self._saved_at = self._clock()
        if self.recorder.rows == self._saved_rows:
            return
        profile = self.recorder.profile()
        try:
            write_profile(profile, self._path, option=OPTION, keep=self._keep)
        except ConfigError as error:
            log.log(logging.DEBUG if self._failed else logging.WARNING, "the profile was not saved: %s", error)
            self._failed = True
        else:
            self._saved_rows, self._failed = profile.rows, False

    def report(self) -> dict[str, Any]:
        """Rows seen, and how many experts have 90 % of the uses."""
        return {"rows": self.recorder.rows, "experts_90": covering(self.recorder.profile().counts, 0.9)}
