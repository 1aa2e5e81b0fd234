"""The versions of a part of a training that goes in rounds of gradients. Internal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.torch.progress import Progress


class VersionCourse:
    """How many ranks each waits for, and with which others go on to the next part."""

    def __init__(self, progress: Progress, size: int) -> None:
        """The part begins where ``progress`` is; ``size`` ranks train together."""
        self._size = size
        self._needed = progress.plan.needed
        self._warmup = progress.plan.warmup
        self._begin = progress.steps
        # With this version, or with a later one; 0: there is no next part.
        self._last = progress.plan.until - progress.steps if progress.hands_over else 0

    def needed(self, version: int) -> int:
        """How many ranks have to come before ``version`` is made."""
        is_of_all = version <= self._warmup or self.is_over(version)
        return self._size if is_of_all else self._needed

    def is_over(self, version: int) -> bool:
        """Whether the part may end with ``version``."""
        return 0 < self._last <= version

    def key(self, version: int) -> int:
        """The number of ``version`` among the exchanges of all parts."""
        return ((self._begin + 1) << 32) + version
