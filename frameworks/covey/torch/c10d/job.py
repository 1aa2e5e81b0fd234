"""The job of a default process group, ``dist.init_process_group``. Internal.

Each default group begins a runtime of its own: its ranks, and how many they are, may be others than
those of the group before it, as after a failure, and a rank cannot know whether all others were in
that one. A runtime that the program began itself, by ``covey.init()``, stays.

Where the default group is of another backend, the first group of Covey's begins the runtime: one of
all ranks as a default group does, one of a part of them by the launcher.
"""

from __future__ import annotations

import os
from typing import Any, Sequence

import torch.distributed as dist

from covey import basics, elastic_job, launched_by, rendezvous, store_generation
from covey.errors import Timeout, Unsupported
from covey.state import state

_ALL_FIRST = 'call dist.new_group(backend="covey") before, on every rank: it makes one of all ranks'


def begin(store: Any, rank: int, size: int) -> None:
    """The runtime in which the process is ``rank`` of ``size``: that of ``covey.init()``, the
    launcher's, or one that these ranks make by the store. Afterwards ``state.of_group`` is "due",
    but for the first, and ``state.group_keys`` is of this default group.

    Args:
        store: of these ranks; None: they are the launcher's.

    Raises as ``covey.init()``, and Unsupported (a ValueError) in an elastic job.
    """
    elastic_job.check_none(os.environ, "a process group of torch.distributed")
    state.groups[size] += 1  # On all ranks of a runtime alike.
    state.group_keys = f"covey/here/{state.generation}/{size}/{state.groups[size]}"
    if basics.is_initialized():
        if state.of_group != "made":
            return
        basics.shutdown()
    if state.of_group or state.rendezvous_settings is None:
        state.forget_job()
        if store is not None:
            _meet(store, rank, size)
    try:
        basics.init()
    finally:
        state.of_group = "due"


def begin_within(store: Any, rank: int, ranks: Sequence[int]) -> None:
    """The runtime of all ranks of a default group that is another backend's.

    Args:
        store: of a group that this is begun for.
        rank: in that group.
        ranks: its ranks, by their number in the default group.

    Raises as ``begin``, and:
        Unsupported: the group is of a part of the ranks, and no launcher has told Covey the others.
        Timeout: ranks that are not in the group have none at this time.
    """
    whole = dist.get_rank(), dist.get_world_size()
    if len(ranks) == whole[1]:
        begin(store, rank, len(ranks))
        return
    environ = os.environ
    by_launcher = (launched_by.under_coveyrun, launched_by.by_torchrun, launched_by.by_mpi)
    is_told = any(by(environ) for by in by_launcher)
    if not is_told or launched_by.place_of(environ) != whole:
        raise Unsupported(
            f"a process group over Covey of ranks {list(ranks)}, a part of the {whole[1]} of a "
            "default group of another backend: no launcher has told Covey these ranks (coveyrun, "
            f"torchrun, mpirun); {_ALL_FIRST}, or begin with init_process_group(\"covey\")"
        )
    try:
        begin(None, *whole)
    except Timeout as error:
        raise Timeout(
            f"{error}; the first process group over Covey is of ranks {list(ranks)}: {_ALL_FIRST}",
            error.peer_rank,
        ) from error


def _meet(store: Any, rank: int, size: int) -> None:
    by_launcher = launched_by.under_coveyrun(os.environ)
    is_mine = by_launcher and launched_by.place_of(os.environ) == (rank, size)
    note = "launcher" if is_mine else "store"
    generation = store_generation.agree(store, rank, size, "init_process_group", note)
    state.group_keys = f"covey/{generation.name}"
    if generation.notes == ["launcher"]:
        return  # Each of these ranks has the place that coveyrun gave it: its job is theirs.
    if size == 1:
        rendezvous.alone()
    else:
        rendezvous.meet(dist.PrefixStore(state.group_keys, store), rank, size)
