"""How long a call of torch.distributed may take, and the ranks missing then. Internal."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, List, Optional, Sequence

from covey.errors import CoveyError, Timeout
from covey.handles import awaited

_ASK_S = 2.0
"""So long the rank that knows the missing ranks may take to answer."""
_LOOK_S = 0.01


class Limit:
    """The timeout of one call, which begins now."""

    def __init__(self, what: str, ranks: Sequence[int], timeout: timedelta) -> None:
        self._what = what
        self._ranks = ranks
        self._timeout_s = timeout.total_seconds()
        self._until = time.monotonic() + self._timeout_s
        self.missing: List[int] = []
        """The ranks of the job that the last error has named."""

    def left(self) -> float:
        """Seconds; 0 when it has passed."""
        return max(0.0, self._until - time.monotonic())

    def passed(self, handle: Any, waited_s: Optional[float] = None) -> Timeout:
        """The error when the operation of ``handle`` had not ended by then, or within
        ``waited_s`` of a wait that was shorter."""
        limit = f"its timeout of {self._timeout_s:g} s"
        limit = limit if waited_s is None else f"the {waited_s:g} s of this wait"
        missing = self.missing = _missing(handle)
        whom = f"it waits for {_listed(missing)}" if missing else "nobody says who is missing"
        return Timeout(
            f"{self._what} of {_listed(self._ranks)} has not ended within {limit}: {whom}; it "
            "stays in flight, and later calls of the group come after it",
            missing[0] if len(missing) == 1 else -1,
        )

    def unmet(self, waited_s: Optional[float]) -> Timeout:
        """The error when no rank had begun its part by then, or within ``waited_s``."""
        limit = f"its timeout of {self._timeout_s:g} s"
        limit = limit if waited_s is None else f"the {waited_s:g} s of this wait"
        return Timeout(f"{self._what}: none of {_listed(self._ranks)} has sent within {limit}")


def _missing(handle: Any) -> List[int]:
    """Members that have not made the call. The first answer may be older than the question."""
    awaited(handle)
    until = time.monotonic() + _ASK_S
    while time.monotonic() < until and not handle.poll():
        missing = awaited(handle)
        if missing:
            return missing
        try:
            handle.wait(_LOOK_S)
        except CoveyError:
            pass
    return []


def _listed(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
