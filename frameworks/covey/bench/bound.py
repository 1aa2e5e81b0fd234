"""What a method could gain at most: how long the steps of all ranks take when nothing but the
computing and the drawn delays costs any time.

A rank begins a step when it has ended the one before. It comes to the exchange after computing;
the exchange takes place once as many ranks as the method needs have come; who comes later goes on
at once. What is injected is slept after that.
"""

from __future__ import annotations

from typing import List, Sequence


def seconds(
    delays: Sequence[Sequence[float]], base: float, needed: int, *sync_every: int
) -> float:
    """How long the training takes.

    Args:
        delays: seconds by step and rank.
        base: seconds that each rank computes in each step.
        needed: ranks that have to come before an exchange takes place.
        sync_every: all have to at each so-many-th step, of each of these numbers; 0: never.

    Returns:
        Until the last rank has ended its last step.

    Example:
        >>> seconds([[0, 2], [2, 0]], 1.0, needed=2), seconds([[0, 2], [2, 0]], 1.0, needed=1)
        (6.0, 4.0)
    """
    ends: List[float] = [0.0] * len(delays[0])
    for step, row in enumerate(delays, 1):
        arrivals = [end + base for end in ends]
        is_sync = any(every > 0 and step % every == 0 for every in sync_every)
        exchanged = max(arrivals) if is_sync else sorted(arrivals)[needed - 1]
        ends = [max(at, exchanged) + delay for at, delay in zip(arrivals, row)]
    return max(ends)
