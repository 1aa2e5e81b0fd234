"""The largest possible gain of a method: the time of steps when only computing and the drawn delays
cost time.

A rank begins a step when it has ended the one before. It comes to the exchange after computing;
the exchange takes place once as many ranks as the method needs have come; a later rank goes on at
once. An injected delay is slept after that.
"""

from __future__ import annotations

import bisect
import heapq
from typing import List, Sequence, Tuple


def ends(
    delays: Sequence[Sequence[float]], base: float, needed: int, *sync_every: int, begun: int = 0
) -> List[float]:
    """When each rank has ended its last step, in seconds.

    Args:
        delays: seconds by step and rank.
        base: seconds that each rank computes in each step.
        needed: ranks that have to come before an exchange takes place.
        sync_every: all have to at each so-many-th step, of each of these numbers; 0: never.
        begun: how many steps were done before.

    Example:
        >>> ends([[0, 2], [2, 0]], 1.0, 2), ends([[0, 2], [2, 0]], 1.0, 1)
        ([6.0, 4.0], [4.0, 4.0])
    """
    found: List[float] = [0.0] * len(delays[0])
    for step, row in enumerate(delays, begun + 1):
        arrivals = [end + base for end in found]
        is_sync = any(every > 0 and step % every == 0 for every in sync_every)
        exchanged = max(arrivals) if is_sync else sorted(arrivals)[needed - 1]
        found = [max(at, exchanged) + delay for at, delay in zip(arrivals, row)]
    return found


def seconds(
    delays: Sequence[Sequence[float]], base: float, needed: int, *sync_every: int
) -> float:
    """Until the last rank has ended its last step; arguments as for ``ends``.

    Example:
        >>> seconds([[0, 2], [2, 0]], 1.0, needed=2), seconds([[0, 2], [2, 0]], 1.0, needed=1)
        (6.0, 4.0)
    """
    return max(ends(delays, base, needed, *sync_every))


def skipping_seconds(
    delays: Sequence[Sequence[float]],
    base: float,
    needed: int,
    versions: int,
    patience: float = 0.0,
) -> float:
    """Until so many exchanges have taken place when a rank that was late leaves out the steps it
    has missed: what it computes is for the exchange after the last one when it begins.

    Args:
        delays: seconds by exchange that a step was for, and rank; those of steps that are left out
            are not slept.
        base, needed: as for ``ends``.
        patience: a rank that was late, or has slept, begins with the others if an exchange takes
            place within so many seconds, less than ``base``; as if it knew.

    Example:
        >>> skipping_seconds([[9, 0, 0], [0, 0, 0], [0, 0, 0]], 1.0, needed=2, versions=3)
        3.0
        >>> skipping_seconds([[0, 1.9], [0, 0], [9, 0], [0, 0], [0, 0]], 1.0, 1, 5, patience=0.2)
        5.0
    """
    exchanges: List[float] = []  # When they took place.
    # Time, whether the rank begins (after all that comes to an exchange then), the rank, its
    # exchange; since when it could have begun.
    events = [(base, False, rank, 1, 0.0) for rank in range(len(delays[0]))]
    waiting: List[Tuple[int, int]] = []
    while len(exchanges) < versions:
        now, begins, rank, step, since = heapq.heappop(events)
        if begins:
            seen = bisect.bisect_right(exchanges, since)
            if seen < len(exchanges):  # One has taken place while it waited.
                since, seen = exchanges[seen], seen + 1
            heapq.heappush(events, (since + base, False, rank, seen + 1, since))
            continue
        free, was_late = [(rank, step)], step <= len(exchanges)
        if not was_late:
            waiting.append((rank, step))
            free = []
            if len(waiting) >= needed:
                exchanges.append(now)
                free, waiting = waiting, []
        for one, was in free:
            slept = delays[was - 1][one]
            waits = patience if was_late or slept > 0 else 0.0
            heapq.heappush(events, (now + slept + waits, True, one, was, now + slept))
    return exchanges[-1]
