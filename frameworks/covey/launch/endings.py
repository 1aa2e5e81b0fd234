"""How a job is brought to its end: which signal the ranks get when. Values only, no clock.

Every plan kills within 2 s of its beginning.

| cause                          | first           | SIGINT | SIGTERM | SIGKILL |
| ------------------------------ | --------------- | ------ | ------- | ------- |
| a rank failed                  | time to report  |        | 0.8 s   | 1.4 s   |
| Ctrl-C                         | SIGUSR1, to say | 1.0 s  | 1.4 s   | 1.7 s   |
| SIGTERM, SIGHUP, output closed |                 |        | 0       | 1.2 s   |
| Ctrl-C during any of these     |                 |        |         | 0       |

A rank alone gets SIGKILL. What it leaves in its process group gets, from its end on:

| a rank                         |                 |        | SIGTERM | SIGKILL |
| ------------------------------ | --------------- | ------ | ------- | ------- |
| that was killed by that        |                 |        |         | 0.3 s   |
| another                        |                 |        | 0.5 s   | 0.7 s   |
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import List, Optional, Tuple

# After SIGKILL a process can still sit in the kernel (a dead file server). Not our wait.
GIVE_UP_S = 5.0
# The answers to Ctrl-C's SIGUSR1 are complete when nothing was printed for so long.
QUIET_S = 0.2


@dataclass(frozen=True)
class Step:
    """At `at` (seconds since the plan began) the ranks still there get `number`."""

    at: float
    number: int


AFTER_FAILURE = (Step(0.8, signal.SIGTERM), Step(1.4, signal.SIGKILL))
AFTER_INTERRUPT = (
    Step(1.0, signal.SIGINT),
    Step(1.4, signal.SIGTERM),
    Step(1.7, signal.SIGKILL),
)
AT_ONCE = (Step(0.0, signal.SIGKILL),)
AFTER_TERMINATE = (Step(0.0, signal.SIGTERM), Step(1.2, signal.SIGKILL))
AFTER_EXIT = (Step(0.5, signal.SIGTERM), Step(0.7, signal.SIGKILL))
AFTER_KILL = (Step(0.3, signal.SIGKILL),)


class Ending:
    """A plan under way."""

    def __init__(self, steps: Tuple[Step, ...], exit_code: Optional[int], now: float) -> None:
        """`exit_code` None: the code of the rank that failed first decides."""
        self.exit_code = exit_code
        self._steps: List[Step] = list(steps)
        self._began_at = now

    def due(self, now: float) -> Optional[int]:
        """The signal to send now, or None. Call until it is None."""
        if self._steps and now >= self._began_at + self._steps[0].at:
            return self._steps.pop(0).number
        return None

    def hurry(self, now: float) -> None:
        """The next step comes now, and the later ones as much earlier."""
        if self._steps:
            self._began_at = min(self._began_at, now - self._steps[0].at)

    def deadline(self) -> float:
        """When `due` or `given_up` has to be asked again."""
        return self._began_at + (self._steps[0].at if self._steps else GIVE_UP_S)

    def given_up(self, now: float) -> bool:
        """True when even SIGKILL has not ended the ranks."""
        return not self._steps and now >= self._began_at + GIVE_UP_S
