"""Life of the runtime and this process's place in the job."""

from __future__ import annotations

import atexit
import json
import os
import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

from covey import _native, method, rendezvous, step_stats, watchdog
from covey.arguments import path_of
from covey.errors import CoveyError, InvalidArgument, Unsupported
from covey.group import Group
from covey.state import Place, state

_exit_registered = False


def init(
    comm: Optional[Iterable[int]] = None,
    process_sets: Union[None, str, Iterable[Union[Group, Iterable[int]]]] = None,
    *,
    settings: Optional[Mapping[str, object]] = None,
) -> None:
    """Joins the job: reads what ``coveyrun`` has put into the environment and waits for all ranks.

    Without a launcher the job has one rank. Called again with nothing new it does nothing.
    ``shutdown`` is registered to run when the interpreter ends.

    A child of ``fork()`` calls nothing of this package. Tensors in shared memory (parameters under
    ``local``, ``dpsgd`` and ``wagma``, gradients under ``allreduce``, ``arena_empty``) are its own
    where it writes to them; where it does not, it reads what the parent has by then, not what it
    had at the fork. A child that is to save the model needs a copy that was made before.

    Args:
        comm: accepted for Horovod's sake: None, or the list of all ranks.
        process_sets: groups to check now. Groups need no registration, so this may stay None;
            ``"dynamic"`` is accepted and means the same.
        settings: knobs to override, by the names that ``covey.knobs()`` lists.

    Raises:
        InvalidArgument: (a ValueError) wrong environment or settings, or called again with
            different ones: the message names the difference.
        CoveyError: a rank did not arrive in time, or no memory.

    Example:
        >>> import covey
        >>> covey.init()
        >>> covey.rank(), covey.size()
        (0, 1)
    """
    state.of_group = ""
    in_parent = state.process == os.getpid()
    if not (is_initialized() and in_parent and not settings):
        _start(settings)
    place = state.require()
    if comm is not None and not _is_all(comm, place.size):
        raise Unsupported(
            f"init(comm=...): only all ranks of the job (0..{place.size - 1}) or None is possible; "
            "use covey.group(ranks) for a part of them"
        )
    if process_sets is None or process_sets == "dynamic":
        return
    if isinstance(process_sets, str) or not isinstance(process_sets, Iterable):
        raise InvalidArgument(f"process_sets must be groups or 'dynamic', not {process_sets!r}")
    for item in process_sets:
        (item if isinstance(item, Group) else Group(item)).id


def _is_all(comm: Any, size: int) -> bool:
    try:
        return sorted(comm) == list(range(size))
    except TypeError:  # A communicator of mpi4py, for example.
        return False


def _start(settings: Optional[Mapping[str, object]]) -> None:
    global _exit_registered
    kept = method.settle(settings or {})
    given = rendezvous.joined(kept or None)
    text = "\n".join(f"{name}={value}" for name, value in given.items())
    was_running = _native.is_initialized()
    _native.init(-1, 0, -1, text or None)
    state.place = Place(*_native.place())
    state.settings = kept
    state.process = os.getpid()
    if not was_running:
        state.init_epoch += 1
    method.compare(settings or {})
    if not _exit_registered:
        _exit_registered = True
        atexit.register(_shutdown_at_exit)
        os.register_at_fork(after_in_child=_native.after_fork)
    watchdog.start()


def _shutdown_at_exit() -> None:
    if state.process != os.getpid():
        return  # A child of fork(): the runtime is the parent's.
    try:
        # A script that has failed does not wait for the others.
        if hasattr(sys, "last_type"):
            _end()
        else:
            shutdown()
    except CoveyError:
        pass  # The process ends anyway, and its peers see that.


def shutdown() -> None:
    """Says goodbye to the other ranks and ends the runtime.

    Operations of this rank that are still in flight end with :class:`covey.Aborted`; so do the
    operations in which other ranks still wait for this one. ``init()`` may follow if every rank
    does the same. Without a runtime it does nothing. Contributions to a method that does not wait
    for all ranks, without a call of ``finish()``, are made to count first, with the other ranks,
    which takes ``max_wait`` at most.

    Example:
        >>> covey.shutdown()
        >>> covey.is_initialized()
        False
    """
    if state.place is None:
        return
    for trainer in list(state.flushes.values()):
        trainer.flush()
    leave()


def leave() -> None:
    """``shutdown()`` at once, which waits for no other rank. Internal."""
    for part in list(state.placed):
        part.move_out()
    _end()


def _end() -> None:
    if state.place is None:
        return
    step_stats.write_report()
    _native.shutdown()
    state.place = None
    state.init_epoch += 1


def is_initialized() -> bool:
    """Whether ``init()`` was called and ``shutdown()`` was not.

    Example:
        >>> covey.is_initialized()
        False
    """
    return state.place is not None


def rank() -> int:
    """The number of this process in the job, 0..size()-1.

    Raises:
        NotInitialized: (a ValueError) before ``init()``.

    Example:
        >>> covey.rank(), covey.size(), covey.local_rank(), covey.local_size()  # One process.
        (0, 1, 0, 1)
    """
    return state.require().rank


def size() -> int:
    """Number of processes of the job. Errors and an example: :func:`rank`."""
    return state.require().size


def local_rank() -> int:
    """The number of this process on its host. Errors and an example: :func:`rank`."""
    return state.require().local_rank


def local_size() -> int:
    """Number of the job's processes on this host. Errors and an example: :func:`rank`."""
    return state.require().local_size


def cross_rank() -> int:
    """The number of this host among the job's, if all hosts run equally many processes.

    Errors as those of :func:`rank`.

    Example:
        >>> covey.cross_rank(), covey.cross_size(), covey.is_homogeneous()  # One host.
        (0, 1, True)
    """
    place = state.require()
    return place.rank // max(place.local_size, 1)


def cross_size() -> int:
    """Number of hosts. Errors and an example: :func:`cross_rank`."""
    place = state.require()
    return max(place.size // max(place.local_size, 1), 1)


def is_homogeneous() -> bool:
    """Whether every host runs equally many processes. An example: :func:`cross_rank`."""
    place = state.require()
    return place.size % max(place.local_size, 1) == 0


def lost_ranks() -> List[int]:
    """The ranks that have died or left the job, ascending, as far as this rank has seen.

    With ``coveyrun --keep-going`` the others go on without them, by a method that does not wait for
    all. A death on this host is seen within a second, that of a silent host after COVEY_LEASE.

    Raises:
        NotInitialized: (a ValueError) before ``init()``.

    Example:
        >>> alive = sorted(set(range(covey.size())) - set(covey.lost_ranks()))
        >>> mine = list(range(100))[alive.index(covey.rank()) :: len(alive)]  # data to go on with
    """
    state.require()
    return list(_native.lost_ranks())


def stats(flat: bool = False) -> Dict[str, Any]:
    """Counters of this rank since ``init()``: operations, bytes, waiting time and more.

    Under "training" are those of the optimizer that has done the most steps, once there is one:
    steps, seconds, steps per second, waiting, and with a method in rounds the freshness of
    gradients and the overdue ranks; with one that averages models their distance. All keys:
    examples/guide/operations.md, those of the runtime core/README.md in Covey's repository.

    Args:
        flat: as a logger likes it: numbers only, by names such as "training.steps".

    Raises:
        NotInitialized: (a ValueError) before ``init()``.

    Example:
        >>> covey.stats()["coordinator_messages"]  # doctest: +SKIP
        0
        >>> logger.log(covey.stats(flat=True))  # doctest: +SKIP
    """
    state.require()
    counters = dict(json.loads(_native.stats() or "{}"))
    main = step_stats.main_stats()
    if main is not None:
        counters["training"] = main.figures()
    return _flat(counters) if flat else counters


def _flat(counters: Dict[str, Any], prefix: str = "") -> Dict[str, float]:
    result: Dict[str, float] = {}
    for key, value in counters.items():
        if isinstance(value, dict):
            result.update(_flat(value, f"{prefix}{key}."))
        elif isinstance(value, (int, float)):
            result[f"{prefix}{key}"] = value
    return result


def status() -> str:
    """The operations that this rank is waiting for, in words, one a line; else the last one.

    Raises NotInitialized (a ValueError) before ``init()``.

    Example:
        >>> covey.status()  # No operation was submitted.
        'waits for nothing; nothing submitted yet\\n'
    """
    return str(_native.status())


def knobs() -> List[Dict[str, Any]]:
    """Every setting: name, unit, default, minimum, maximum, help, and its value now.

    Example:
        >>> {knob["name"]: knob["value"] for knob in covey.knobs()}["log_level"]  # doctest: +SKIP
        'warn'
    """
    return list(json.loads(_native.knobs() or "[]"))


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts the trace of this rank: a Chrome/Perfetto JSON file that is valid at every moment.

    Args:
        file_path: where to write; every rank needs its own path.
        mark_cycles: accepted for Horovod's sake. Covey has no cycles.

    Raises:
        InvalidArgument: (a ValueError) the file cannot be written or a trace runs already.

    Example:
        >>> covey.start_timeline(f"trace/rank.{covey.rank()}.json")  # doctest: +SKIP
        >>> covey.stop_timeline()
    """
    del mark_cycles
    _native.timeline_start(path_of("file_path", file_path))


def stop_timeline() -> None:
    """Ends the trace of this rank. Without one it does nothing. See :func:`start_timeline`."""
    _native.timeline_stop()
