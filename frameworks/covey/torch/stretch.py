"""The steps that a rank does by itself between two exchanges of its model. Internal.

A rank that is overdue is not waited for, so one that came back anywhere between two exchanges of
the others would be late for each of them, for ever. It therefore gives its steps up as soon as the
version it does them for has been made without it, which brings it within a step of the others; and
from then on it comes one step early, until it is waited for again. Not where a step takes about as
long as it would wait: then those that it waits for would be missing when that is over.
"""

from __future__ import annotations

import time
from typing import Callable


class Stretch:
    """Such steps of one rank.

    Attributes:
        length: so many there are.
        done: so many of them it has done.
    """

    def __init__(
        self, length: int, done: int, max_wait_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """A rank that has done ``done`` steps of ``length`` and would wait ``max_wait_s``."""
        self.length = length
        self.done = done
        self._first = done
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._began = clock()

    def step(self) -> None:
        """One more is done."""
        self.done += 1

    def is_over(self, overdue: bool, is_missed: Callable[[], bool]) -> bool:
        """Whether the model is exchanged now, by a rank that is ``overdue`` or is not.

        ``is_missed`` is asked of one that is: whether the version it would be in has been made.
        """
        if self.done >= self.length:
            return True
        return overdue and (self._comes_early() or is_missed())

    def restart(self) -> None:
        """It has been exchanged."""
        self.done = self._first = 0
        self._began = self._clock()

    def _comes_early(self) -> bool:
        step_s = (self._clock() - self._began) / max(1, self.done - self._first)
        return self.done == self.length - 1 and 2 * step_s < self._max_wait_s
