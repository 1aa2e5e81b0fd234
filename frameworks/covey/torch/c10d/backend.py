"""Makes Covey known to torch.distributed. ``import covey.torch`` does, and `covey_torch` with
``import torch``; the backend itself, which is imported when a process group is made, is
``group.py``. Internal.

torch.distributed wants a store that its ranks share. torchrun serves one and says where; coveyrun
says at which port rank 0 may serve one, and where covey.torch is imported a file in memory, which
rank 0 makes, stands for it among ranks of one host. mpirun and srun say nothing: rank 0 serves one,
and tells the others where by MPI, or by what joined them (COVEY_RENDEZVOUS).
"""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, Optional, Tuple
from urllib.parse import parse_qsl, urlsplit

import torch.distributed as dist

from covey import basics, elastic_job, launched_by
from covey.collectives import barrier
from covey.errors import Unsupported
from covey.launch import network
from covey.objects import broadcast_object
from covey.state import state
from covey.torch.c10d import job
from covey.torch.c10d.tracing import untraced

NAME = "covey"
DEVICES = ("cpu", "cuda")
_HANDLERS = "_rendezvous_handlers"
_SHUTDOWN = "_shutdown_backend"
_OF_ENV = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torch's env:// reads
_memory = -1  # Its descriptor: a process stays in its job.


def create(options: Any, backend_options: Any = None) -> Any:
    """The process group that torch asks for, by its extended interface of backends."""
    from covey.torch.c10d import group

    return group.create(options, backend_options)


def _file_of_job() -> str:
    """Where all ranks find the file: memory, which goes with the last that has it open."""
    from covey.launch import memory

    global _memory
    if _memory < 0:
        made = memory.make() if basics.rank() == 0 else -1
        place = memory.place_of(made) if made >= 0 else None
        place = broadcast_object(place, 0, "torch.distributed.store")
        _memory = made if made >= 0 else memory.open_told(str(place))
        barrier()  # Rank 0 may be gone after it.
    return f"/proc/self/fd/{_memory}"


def _served_store() -> Any:
    """One that rank 0 serves. The other ranks get its address by a broadcast."""
    place: Tuple[str, int] = ("", 0)
    if basics.rank() == 0:
        own = network.outward()
        state.store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)
        place = (own, state.store.port)
    place = broadcast_object(place, 0, "torch.distributed.store")
    if basics.rank() != 0:
        state.store = dist.TCPStore(*place, is_master=False)
    return state.store


def _file_store() -> Any:
    """One in memory, for ranks of one host."""
    return dist.FileStore(_file_of_job(), basics.size())


def _store_of_job() -> Optional[Callable[[], Any]]:
    """The function that makes a store for all ranks, where no address has been set at which they
    could meet. None: torch's own env:// is to find one. Raises Unsupported in an elastic job."""
    elastic_job.check_none(os.environ, "a process group of torch.distributed")
    if launched_by.under_coveyrun(os.environ):
        return _file_store if "COVEY_BOOK_FD" not in os.environ else None
    if all(name in os.environ for name in _OF_ENV):
        return None
    is_told = launched_by.by_mpi(os.environ) or os.environ.get("COVEY_RENDEZVOUS")
    return _served_store if is_told else None


def _is_of_job(asked: Dict[str, str]) -> bool:
    """Whether a group of all ranks is asked for: the script gives this one no other place."""
    rank, size = launched_by.place_of(os.environ)
    ours = {"rank": str(rank), "world_size": str(size)}
    return all(asked.get(name, text) == text for name, text in ours.items())


def _with_env(theirs: Callable[..., Any]) -> Callable[..., Iterator[Tuple[Any, int, int]]]:
    """The rendezvous ``env://``, which is the default: it needs no port under coveyrun, and none of
    torch's variables under mpirun and srun, or with COVEY_RENDEZVOUS."""
    meetings = 0

    def meet(url: str, **options: Any) -> Iterator[Tuple[Any, int, int]]:
        nonlocal meetings
        store_of_job = _store_of_job()
        if store_of_job is None or not _is_of_job(dict(parse_qsl(urlsplit(url).query))):
            yield from theirs(url, **options)
            return
        try:
            job.begin(None, *launched_by.place_of(os.environ))
        except Unsupported as error:
            if launched_by.under_coveyrun(os.environ):
                raise
            # The group may be one of another backend.
            raise Unsupported(f"{error}; or set {', '.join(_OF_ENV)} for env://") from error
        meetings += 1
        yield dist.PrefixStore(str(meetings), store_of_job()), basics.rank(), basics.size()

    return meet


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


def _with_covey(theirs: Callable[..., None]) -> Callable[..., None]:
    """``torch.distributed.monitored_barrier``, which torch keeps for Gloo by name."""

    @untraced
    @functools.wraps(theirs)
    def meet(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        from covey.torch.c10d.group import CoveyProcessGroup

        chosen = dist.group.WORLD if group is None else group
        if not isinstance(chosen, CoveyProcessGroup):
            return theirs(group, timeout, wait_all_ranks)
        limit = timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else timeout
        chosen.monitored_barrier(limit, wait_all_ranks)

    return meet


def _with_shutdown(theirs: Callable[..., None]) -> Callable[..., None]:
    """Torch before 2.7 shuts down the backends of NCCL alone; this shuts down Covey's, too."""

    @functools.wraps(theirs)
    def shut_down(pg: Any) -> None:
        from covey.torch.c10d.group import CoveyProcessGroup

        if isinstance(pg, CoveyProcessGroup):
            pg.shutdown()
        else:
            theirs(pg)

    return shut_down


def register() -> None:
    """Once in a process. Where `covey_torch` has told torch the name, the rest."""
    if not dist.is_available():
        return
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=list(DEVICES))
    # Torch has no other way to complete a rendezvous that it knows; without it users give a store.
    handlers: Dict[str, Any] = getattr(dist.rendezvous, "__globals__", {}).get(_HANDLERS, {})
    if "env" in handlers:
        handlers["env"] = _with_env(handlers["env"])
    theirs = getattr(dist.distributed_c10d, _SHUTDOWN, None)
    if theirs is not None:
        setattr(dist.distributed_c10d, _SHUTDOWN, _with_shutdown(theirs))
    meet = _with_covey(dist.monitored_barrier)
    for module in (dist, dist.distributed_c10d):
        setattr(module, "monitored_barrier", meet)
