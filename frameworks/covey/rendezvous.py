"""How ranks find the job's shared memory when torchrun has started them. Internal.

coveyrun makes the memory and hands it down. Under torchrun the first rank of the host makes it and
says in the store of torch.distributed, which torchrun's agent serves, where the others find it: its
process and descriptor.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional

from covey import _native
from covey.errors import Unsupported
from covey.state import state

_KEY = "covey/memory"


def by_torchrun(environ: Mapping[str, str]) -> bool:
    """Whether torchrun has started this process as one of several."""
    several = environ.get("WORLD_SIZE", "1") != "1"
    return several and "TORCHELASTIC_RESTART_COUNT" in environ and "COVEY_SHM_FD" not in environ


def settings(environ: Mapping[str, str]) -> Dict[str, object]:
    """The place of this process as settings for the core; empty when torchrun did not start it.

    Raises:
        Unsupported: (a ValueError) ranks of several hosts, or torchrun without its agent's store.
    """
    if state.meeting is not None:
        return state.meeting
    if not by_torchrun(environ):
        return {}
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise Unsupported(
            "torchrun serves no store here (TORCHELASTIC_USE_AGENT_STORE is not True); start the "
            "ranks with coveyrun"
        )
    from torch.distributed import PrefixStore, TCPStore

    agent = TCPStore(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), is_master=False)
    attempt = f"{environ['TORCHELASTIC_RUN_ID']}/{environ['TORCHELASTIC_RESTART_COUNT']}"
    return meet(PrefixStore(attempt, agent), int(environ["RANK"]), int(environ["WORLD_SIZE"]))


def meet(store: Any, rank: int, size: int) -> Dict[str, object]:
    """The same through any store of torch.distributed that these ``size`` ranks share.

    The first meeting counts: a process stays in its job.
    """
    if state.meeting is not None:
        return state.meeting
    on_host = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if on_host != size:
        raise Unsupported(
            f"{size} ranks on several hosts ({on_host} on this one): shared memory joins those of "
            "one host; use mpirun and `covey build mpi` across hosts"
        )
    if rank == 0:
        descriptor = _native.job_create(size)
        store.set(_KEY, f"{os.getpid()} {descriptor}")
    else:
        process, theirs = store.get(_KEY).decode().split()
        descriptor = os.open(f"/proc/{process}/fd/{theirs}", os.O_RDWR | os.O_CLOEXEC)
    state.meeting = {
        "rank": rank,
        "size": size,
        "local_rank": rank,
        "local_size": size,
        "shm_fd": descriptor,
    }
    return state.meeting


def joined(given: Optional[Mapping[str, object]]) -> Dict[str, object]:
    """What ``init(settings=given)`` hands to the core."""
    return {**settings(os.environ), **(given or {})}
