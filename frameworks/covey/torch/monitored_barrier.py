"""The barrier of torch.distributed that names the ranks which do not come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist


def monitored_barrier(
    group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
) -> None:
    """As ``torch.distributed.monitored_barrier``, which refuses other backends than Gloo.

    Every rank of the group calls it. Each of them names all that are missing, not rank 0 alone.

    Args:
        group: a process group of backend covey; None: that of all ranks. Of another backend
            torch's own function does it.
        timeout: how long to wait; None: as the group says.
        wait_all_ranks: for other backends: all missing ranks are named here anyway.

    Raises:
        Timeout: (a TimeoutError) ranks have not come in time; the message names them.
        Aborted: a rank died or left.

    Example:
        >>> monitored_barrier(timeout=timedelta(seconds=30))
    """
    from covey.torch.c10d import CoveyProcessGroup

    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    chosen = dist.group.WORLD if group is None else group
    if not isinstance(chosen, CoveyProcessGroup):
        dist.monitored_barrier(group, timeout, wait_all_ranks)
        return
    options = dist.BarrierOptions()
    if timeout is not None:
        options.timeout = timeout
    chosen.barrier(options).wait()
