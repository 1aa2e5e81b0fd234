"""How ranks find the job's shared memory when coveyrun has not started them. Internal.

coveyrun makes the memory and hands it down. Otherwise the first rank makes it and tells the others
its process and descriptor, by one of three ways:

COVEY_RENDEZVOUS   rank 0 serves there over the control plane (the plug-in grpc, with the job's
                   secret): for ranks of torchrun, srun or mpirun, whose variables say which rank
                   this is. It is closed again when all have the memory: from then on they see each
                   other's deaths in it.
torchrun's store   without that variable. The agent of torchrun serves it before any rank runs, so
                   neither a plug-in nor a secret is needed: what torchrun's users trust already is
                   not made less safe. Ranks on several hosts find each other by it too
                   (store_book.py), and not those of an earlier start (store_generation.py).
MASTER_ADDR,       where torchrun serves no store, or nothing but RANK and WORLD_SIZE says that this
MASTER_PORT        is one of several, as for env:// of torch.distributed, which may share the store
                   of rank 0. Without an address such ranks are refused: each would be a job of one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from covey import _native, elastic_job, launched_by, store_book, store_generation
from covey.errors import CoveyError, InvalidArgument, Timeout, Unsupported, shown
from covey.notice import tell
from covey.state import state

if TYPE_CHECKING:
    from covey.launch.formation import Part

_KEY = "covey/memory"
_PLAN = "covey/plan"
_MOST_PORTS = 65535
_MOST_CHARACTERS = 1000  # Of what one rank tells the others.
_FAREWELL_S = 5.0  # So long rank 0 waits for the ranks it has told that there will be no job.
_OF_COVEYRUN = {
    *("COVEY_RANK", "COVEY_SIZE", "COVEY_LOCAL_RANK", "COVEY_LOCAL_SIZE", "COVEY_SHM_FD"),
    *("COVEY_BOOK_FD", "COVEY_LISTEN_FD", "COVEY_WITNESS_FD", "COVEY_ELASTIC_FD"),
}
_SEVERAL_HOSTS = (
    "{} on several hosts ({}): here memory joins those of one host; start them with coveyrun -H or "
    "torchrun, or with mpirun after `covey build mpi`"
)


def settings(environ: Mapping[str, str]) -> Dict[str, object]:
    """The place of this process as settings for the core; empty when it was told its place already.

    Raises:
        Unsupported: (a ValueError) ranks of several hosts, or the plug-in is not there.
        InvalidArgument: (a ValueError) COVEY_RENDEZVOUS without what it needs, RANK and WORLD_SIZE
            without MASTER_ADDR and MASTER_PORT, or these are no address that rank 0 can serve.
        Timeout: there is no server.
        CoveyError: the others did not come in time, or one has died.
    """
    if state.rendezvous_settings is not None:
        return state.rendezvous_settings
    if elastic_job.is_one(environ):
        return elastic_job.join(environ)
    if launched_by.under_coveyrun(environ):
        launched_by.check_passed_on(environ, "COVEY_SHM_FD")
        return {}
    if "COVEY_SHM_FD" in environ:
        inner = {name: text for name, text in environ.items() if name not in _OF_COVEYRUN}
        return settings(inner) or alone()
    if environ.get("COVEY_RENDEZVOUS"):
        return meet_at(environ["COVEY_RENDEZVOUS"], environ)
    if not launched_by.by_torchrun(environ):
        return meet_by_variables(environ) if launched_by.by_variables(environ) else {}
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return meet_by_variables(environ)
    from torch.distributed import PrefixStore, TCPStore

    agent = TCPStore(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), is_master=False)
    rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    state.generation = store_generation.agree(agent, rank, size, "covey.init").name
    return meet(PrefixStore(f"covey/{state.generation}", agent), rank, size)


def meet_at(address: str, environ: Mapping[str, str]) -> Dict[str, object]:
    """Joins the job at ``address``, which rank 0 serves; returns when all have its memory."""
    from covey.launch.rendezvous_handler import LOOK_S, RendezvousHandler, everywhere
    from covey.launch.rendezvous_handler import start_timeout_s, too_late
    from covey.launch.spec import Rendezvous

    rank, size = launched_by.place_of(environ)
    secret_file = environ.get("COVEY_SECRET_FILE", "")
    if not secret_file:
        raise InvalidArgument(
            "COVEY_RENDEZVOUS needs COVEY_SECRET_FILE, a file with the job's secret"
        )
    timeout_s = start_timeout_s()
    plan = Rendezvous(address, secret_file, rank == 0, size, rank, timeout_s)
    until = time.monotonic() + timeout_s
    handler = RendezvousHandler(plan, slots=1)
    warning = everywhere(handler.address)
    if rank == 0 and warning:
        tell(f"rank 0 serves the rendezvous at {handler.address}; {warning}")

    def rest() -> None:
        if time.monotonic() > until:
            raise too_late(handler, timeout_s)
        fd = handler.fileno()
        select.select([fd] if fd >= 0 else [], [], [], LOOK_S)

    try:
        part = handler.advance()
        while part is None:
            rest()
            part = handler.advance()
        handler.report("left")
        handler.waiting_for = "not every rank has opened the job's memory"
        try:
            while rank == 0 and not handler.has_ended():  # the server stays until they have
                rest()
        except BaseException:
            part.close()
            raise
    finally:
        handler.close()
    state.rendezvous_settings = _of_part(part)
    return state.rendezvous_settings


def meet_by_variables(environ: Mapping[str, str]) -> Dict[str, object]:
    """Joins the job whose rank 0 serves a store at MASTER_ADDR and MASTER_PORT."""
    from covey.launch.rendezvous_handler import start_timeout_s

    rank, size = launched_by.place_of(environ)
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    is_port = 0 <= launched_by.number_of(port) <= _MOST_PORTS
    if not address.isprintable() or not address or not is_port:
        told = shown(f"MASTER_ADDR={address} and MASTER_PORT={port}", kept="")
        raise InvalidArgument(
            f"RANK={rank} and WORLD_SIZE={size} say that this process is one of {size}, but "
            f"{told} do not say where they meet; start them "
            f"with coveyrun -np {size} or torchrun, set both, or unset WORLD_SIZE for a job of one"
        )
    try:
        from torch.distributed import PrefixStore, TCPStore
    except ImportError as error:
        raise Unsupported(
            f"RANK={rank} and WORLD_SIZE={size}: ranks meet at {address}:{port} by a store of "
            f"PyTorch, which is not here ({error}); start them with coveyrun -np {size}"
        ) from error
    timeout_s = start_timeout_s()
    try:
        state.store = TCPStore(
            address,
            int(port),
            is_master=rank == 0,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
        return meet(PrefixStore("covey", state.store), rank, size)
    except CoveyError:
        raise
    except RuntimeError as error:
        where = f"{address}:{port} (MASTER_ADDR, MASTER_PORT)"
        why = str(error).splitlines()[0]
        if rank == 0:
            raise InvalidArgument(f"rank 0 cannot serve the job at {where}: {why}") from error
        raise Timeout(
            f"rank {rank} of {size} (RANK, WORLD_SIZE) did not meet rank 0 at {where} within "
            f"{timeout_s:g} s (COVEY_START_TIMEOUT): {why}"
        ) from error


def _on_host() -> Optional[int]:
    """The number of ranks on this host, as the launcher has told; None: it has not."""
    if "COVEY_SHM_FD" in os.environ and launched_by.OF_TORCHRUN not in os.environ:
        return None  # LOCAL_WORLD_SIZE is of coveyrun, within whose rank these were started.
    told = os.environ.get("LOCAL_WORLD_SIZE")
    if told is None:
        return None
    if launched_by.number_of(told) < 0:
        raise Unsupported(f"LOCAL_WORLD_SIZE={shown(told, kept='')} is no number of ranks")
    return launched_by.number_of(told)


def _plan(store: Any, rank: int, size: int) -> str:
    """Rank 0 says whether the ranks are on one host for certain, or have to look."""
    on_host = _on_host()
    if rank != 0:
        return "several" if store.get(_PLAN) == b"several" else "one"
    plan = "one" if on_host == size else "several"
    store.set(_PLAN, plan)
    return plan


def meet(store: Any, rank: int, size: int) -> Dict[str, object]:
    """The same through any store of torch.distributed that these ``size`` ranks share.

    The first rendezvous counts: a process stays in its job, but for torch/c10d/job.py.

    Raises:
        Unsupported: (a ValueError) a rank cannot take part.
        Timeout: a rank did not come in time.
        InvalidArgument: (a ValueError) what the store says is not the memory of a job of this user.
    """
    if state.rendezvous_settings is not None:
        return state.rendezvous_settings
    if _plan(store, rank, size) == "several":
        over_network = store_book.meet(store, rank, size, os.environ)
        if over_network is not None:
            state.rendezvous_settings = over_network
            return over_network
    try:
        descriptor = _memory(store, rank, size)
    except Exception as error:
        if rank != 0:
            store.set(f"{_KEY}/{rank}", str(error))
        raise
    try:
        _agree(store, rank, size)
    except BaseException:
        os.close(descriptor)
        raise
    state.rendezvous_settings = _on_this_host(rank, size, descriptor)
    return state.rendezvous_settings


def _memory(store: Any, rank: int, size: int) -> int:
    """The descriptor of the job's memory: made by rank 0, opened by the others."""
    from covey.launch import memory

    if rank == 0:
        descriptor = _native.job_create(size)
        told = {"memory": memory.place_of(descriptor), "host": memory.host_id()}
        store.set(_KEY, json.dumps(told))
        return descriptor
    place, host = _told(store.get(_KEY))
    if host != memory.host_id():
        raise Unsupported(_SEVERAL_HOSTS.format(f"ranks 0 and {rank}", "or in two containers"))
    return memory.open_told(place)


def _agree(store: Any, rank: int, size: int) -> None:
    """Returns when every rank has the memory. One that has not told why under its number, and rank
    0 tells all of it: no rank waits for it in vain."""
    from covey.launch.rendezvous_handler import start_timeout_s

    limit = timedelta(seconds=start_timeout_s())
    if rank != 0:
        store.set(f"{_KEY}/{rank}", "")
        store.wait([f"{_KEY}/verdict"], limit)
        verdict = _said(store.get(f"{_KEY}/verdict"))
        store.set(f"{_KEY}/heard/{rank}", "")
        if verdict:
            raise Unsupported(verdict)
        return
    others, verdict = range(1, size), ""
    try:
        store.wait([f"{_KEY}/{other}" for other in others], limit)
        told = {other: _said(store.get(f"{_KEY}/{other}")) for other in others}
        first = next((other for other in others if told[other]), None)
        if first is not None:
            verdict = f"rank {first} cannot join the job: {told[first]}"
    except RuntimeError as error:  # torch's, of a store
        told = {other: "" for other in others if store.check([f"{_KEY}/{other}"])}
        late = ", ".join(str(other) for other in others if other not in told)
        if not late:
            raise
        verdict = f"of {size} ranks {late} did not come within {limit.total_seconds():g} s "
        verdict += f"(COVEY_START_TIMEOUT): {str(error).splitlines()[0]}"
    store.set(f"{_KEY}/verdict", verdict)
    if not verdict:
        return
    with contextlib.suppress(RuntimeError):  # The store may be this process's: it goes with it.
        came = [f"{_KEY}/heard/{other}" for other in others if told.get(other) == ""]
        store.wait(came, timedelta(seconds=_FAREWELL_S))
    raise (Unsupported if any(told.values()) else Timeout)(verdict)


def _said(words: bytes) -> str:
    """The text that a rank has put into the store for people. A stranger that reaches the store can
    put something else there: it steers no terminal, and is no longer than a rank's words are."""
    text = shown(words[: 4 * _MOST_CHARACTERS].decode("utf-8", "replace"))
    return text[:_MOST_CHARACTERS]


def _told(said: bytes) -> Tuple[str, str]:
    """(place of the memory, host) as rank 0 has put them into the store. A stranger that reaches
    the store can put something else there: nothing in it is evaluated."""
    try:
        told = json.loads(said)
        place, host = told["memory"], told["host"]
    except (ValueError, TypeError, KeyError, RecursionError):
        place = host = None
    if not isinstance(place, str) or not isinstance(host, str):
        raise InvalidArgument(
            f"the store at MASTER_ADDR and MASTER_PORT does not say where the job's memory is, but "
            f"{ascii(said[:80])}: another program uses it, or another version of Covey"
        )
    return place, host


def _on_this_host(rank: int, size: int, shm_fd: int) -> Dict[str, object]:
    return {
        "rank": rank,
        "size": size,
        "local_rank": rank,
        "local_size": size,
        "shm_fd": shm_fd,
        # Not what belongs to a job that this one was started in.
        "summary_fd": -1,
        "book_fd": -1,
        "witness_fd": -1,
        "listen_fd": -1,
    }


def _of_part(part: Part) -> Dict[str, object]:
    """The settings of a rank that is a node of its own."""
    from covey.launch import book

    (place,) = part.places
    several: Dict[str, object] = {}
    if part.book:
        (listener,) = part.listeners
        several = {"book_fd": book.make(part.book), "listen_fd": listener.detach()}
    here = {"local_rank": place.local_rank, "local_size": place.local_size}
    return {**_on_this_host(place.rank, place.size, part.shm_fd), **here, **several}


def alone() -> Dict[str, object]:
    """A job of one."""
    state.rendezvous_settings = _on_this_host(0, 1, _native.job_create(1))
    return state.rendezvous_settings


def joined(given: Optional[Mapping[str, object]]) -> Dict[str, object]:
    """The settings that ``init(settings=given)`` hands to the core."""
    return {**settings(os.environ), **(given or {})}
