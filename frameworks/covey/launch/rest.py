"""Processes that ranks leave in their process groups: they have a short time to end, then are
killed.

Python's resource tracker is one of them: when the rank has ended it unlinks the shared memory and
the semaphores of multiprocessing, and ends. Internal.
"""

from __future__ import annotations

import time
from typing import Sequence

from covey.launch.endings import GIVE_UP_S
from covey.launch.process import RankProcess, group_members

# The system does not tell when a process group is empty: so often it is looked at.
LOOK_S = 0.05


def sweep(ranks: Sequence[RankProcess], now: float) -> None:
    """Ends what those of `ranks` that have ended have left, as far as it is time."""
    ended = [it for it in ranks if it.has_rest]
    members = group_members([it.pid for it in ended]) if ended else {}
    for it in ended:
        it.end_rest(now, members.get(it.pid, []))


def end_all(ranks: Sequence[RankProcess]) -> None:
    """Kills these ranks, and returns when nothing of them is left, or GIVE_UP_S later."""
    for it in ranks:
        it.kill()
    until = time.monotonic() + GIVE_UP_S
    while True:
        now = time.monotonic()
        for it in ranks:
            it.poll()
        sweep(ranks, now)
        left = [it for it in ranks if it.returncode is None or it.has_rest]
        if not left or now >= until:
            break
        time.sleep(LOOK_S)
    for it in left:
        it.abandon()  # It sits in the kernel; the signal stays pending.
