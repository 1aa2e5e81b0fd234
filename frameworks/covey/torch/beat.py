"""When the next version is due, for a rank that would come too late for it anyway. Internal.

A rank that begins a pass shortly before a version ends computes a whole pass for it and comes late
by nearly as much, and so at the next one. If it waits until that version has ended it begins with
the others, at the newest parameters, and is in time from then on. It waits for a small part of a
pass only, and only where the version is due by what it has seen of those before.
"""

from __future__ import annotations

import collections
import statistics
import time
from typing import Callable, Deque, Optional, Tuple

_WAIT = 1 / 3  # Of a pass or of a period: so long it waits at most, once: then it is in time.
_SLACK = 1 / 10  # So wrong the time may be.
_KEPT = 9  # Figures of which there is the median.


class Beat:
    """The times of one rank's passes and versions, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: Optional[float] = None
        self._passes: Deque[float] = collections.deque(maxlen=_KEPT)
        self._periods: Deque[float] = collections.deque(maxlen=_KEPT)
        self._seen: Optional[Tuple[int, float]] = None

    def begin(self) -> None:
        """A pass begins."""
        self._began = self._clock()

    def end(self) -> None:
        """It has ended: ``step()`` begins."""
        if self._began is not None:
            self._passes.append(self._clock() - self._began)
        self._began = None

    def see(self, version: int, at: Optional[float] = None) -> None:
        """That version has ended, so far the last; ``at`` then, or, since this rank has waited for
        it, just now."""
        now = self._clock() if at is None else at
        if self._seen is not None and version > self._seen[0]:
            self._periods.append((now - self._seen[1]) / (version - self._seen[0]))
        self._seen = version, now

    def patience(self, version: int) -> float:
        """How long to wait for that version, the next one, before a pass begins; 0: not at all."""
        if self._seen is None or not self._periods or not self._passes:
            return 0.0
        period = statistics.median(self._periods)
        length = min(period, statistics.median(self._passes))
        left = self._seen[1] + (version - self._seen[0]) * period - self._clock()
        return left + _SLACK * length if -_SLACK * length < left < _WAIT * length else 0.0
