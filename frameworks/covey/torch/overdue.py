"""The ranks that a rank in rounds has seen become overdue. Internal."""

from __future__ import annotations

from typing import Tuple

from covey.group import Group
from covey.notice import warn
from covey.step_stats import StepStats


class Overdue:
    """As the records of the versions say that one rank has applied, or merged with.

    Attributes:
        counts: by member: how often it has become so.
        missing: by member: for how many versions it has been so, in the last version seen.
        index: of this rank.
    """

    def __init__(self, group: Group, step_stats: StepStats, outcome: str) -> None:
        """``outcome``: for people: until when a rank is not waited for, and what becomes of it."""
        self.counts = [0] * group.size()
        self.missing: Tuple[int, ...] = (0,) * group.size()
        self._ranks = group.ranks
        self.index = group.rank() or 0
        self._step_stats = step_stats
        self._outcome = outcome
        self._is_known = True  # ``missing`` is of the rank's own version.

    def see(self, version: int, missing: Tuple[int, ...]) -> None:
        """The record of ``version`` says ``missing``: names the ranks that have become overdue."""
        for index, (before, after) in enumerate(zip(self.missing, missing)):
            if after > 0 and before == 0:
                self.counts[index] += 1
                self._step_stats.overdue(index)
                warn(
                    f"rank {self._ranks[index]} was missing at version {version} when max_wait was "
                    f"over: it is not waited for until {self._outcome}"
                )
        self.missing = missing
        self._is_known = True

    def forget(self) -> None:
        """The rank is at a version of which it has seen no record."""
        self._is_known = False

    def is_own(self) -> bool:
        """Whether this rank is overdue."""
        return self.missing[self.index] > 0

    def may_be(self) -> bool:
        """Whether a rank was overdue in this rank's version, or may have been."""
        return not self._is_known or any(self.missing)
