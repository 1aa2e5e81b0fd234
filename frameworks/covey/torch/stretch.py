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


class Course:
    """Which steps the versions of a part come after.

    They do ``length`` apart, and after the step before ``until``, where another part begins: if a
    rank is missing there, the part goes on from that step in the same way.

    Example:
        >>> course = Course(begin=2, until=9, length=3)
        >>> [course.after(2, versions) for versions in range(1, 6)]
        [5, 8, 9, 12, 15]
    """

    def __init__(self, begin: int, until: int, length: int) -> None:
        self._begin = begin
        self._until = until
        self._length = length

    def after(self, at: int, versions: int = 1) -> int:
        """How many steps are done after so many versions more, when ``at`` are, which is at one of
        them, or between two.
        """
        if versions < 1:
            return at
        begin = self._begin if at < self._until else self._until
        end = begin + ((at - begin) // self._length + versions) * self._length
        if at >= self._until or end <= self._until:
            return end
        done = (self._until - begin - 1) // self._length - (at - begin) // self._length + 1
        return self._until + (versions - done) * self._length


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
