"""The barrier of torch.distributed that names the ranks which do not come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional, Sequence

import torch.distributed as dist

from covey.errors import Timeout


def monitored_barrier(
    group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
) -> None:
    """The same as ``torch.distributed.monitored_barrier``, which takes groups of Covey too.

    Every rank of the group calls it. Each of them names all that are missing, not rank 0 alone.

    Args:
        group: a process group; None: that of all ranks. For one of another backend torch's own
            function does it.
        timeout: how long to wait; None: as the group says. A float is a number of seconds.
        wait_all_ranks: whether the error begins with all missing ranks or with the first. All are
            named in both cases.

    Raises:
        Timeout: (a TimeoutError and a RuntimeError) ranks have not come in time; the message names
            them. Its first words are Gloo's.
        Aborted: a rank died or left.

    Example:
        >>> monitored_barrier(timeout=timedelta(seconds=30))
    """
    dist.monitored_barrier(group, timeout, wait_all_ranks)


def meets(group: Any, timeout: Any, wait_all_ranks: bool) -> bool:
    """Does it if the group is Covey's. Internal."""
    from covey.torch.c10d import CoveyProcessGroup

    chosen = dist.group.WORLD if group is None else group
    if not isinstance(chosen, CoveyProcessGroup):
        return False
    limit = timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else timeout
    chosen.monitored_barrier(limit, wait_all_ranks)
    return True


def meet(
    work: Any, rank: int, ranks: Sequence[int], limit: timedelta, wait_all_ranks: bool
) -> None:
    """Waits for the barrier ``work`` of the group of ``ranks``. Internal."""
    try:
        work.wait()
    except Timeout as error:
        missing = [ranks.index(rank) for rank in work.missing()]
        raise Timeout(
            _words(rank, missing, limit, wait_all_ranks) + f": {error}",
            error.peer_rank,
        ) from error


def _words(rank: int, missing: Sequence[int], limit: timedelta, wait_all_ranks: bool) -> str:
    """Gloo's: tests and logs of scripts look for them. Ranks are those in the group."""
    if rank != 0:
        return (
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
            "for send/recv from rank 0"
        )
    text = f"Rank 0 timed out in monitoredBarrier after {limit.total_seconds() * 1e3:g} ms"
    if len(missing) > 1 and wait_all_ranks:
        return f"{text}: Ranks {', '.join(map(str, missing))} failed to pass monitoredBarrier"
    return f"{text}: Rank {missing[0]} failed to pass monitoredBarrier" if missing else text
