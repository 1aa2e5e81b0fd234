"""The job of a default process group, ``dist.init_process_group``. Internal.

Each default group begins a runtime of its own: its ranks, and how many they are, may be others than
those of the group before it, as after a failure, and a rank cannot know whether all others were in
that one. A runtime that the program began itself, by ``covey.init()``, stays.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from covey import basics, rendezvous
from covey.state import state


def keys_of_group(store: Any, rank: int, size: int) -> Any:
    """A part of a group's store for its keys alone. The store may have served groups of that name
    before: this is the N-th of this size in which a process is ``rank``, on all ranks alike.
    """
    turn = store.add(f"covey/turn/{size}/{rank}", 1)
    return dist.PrefixStore(f"covey/{size}/{turn}", store)


def begin(store: Any, rank: int, size: int) -> None:
    """The runtime in which the process is ``rank`` of ``size``: that of ``covey.init()``, the
    launcher's, or one that these ranks make by the store. Afterwards ``state.of_group`` is "due",
    but for the first.

    Raises as ``covey.init()``.
    """
    if basics.is_initialized():
        if state.of_group != "made":
            return
        basics.shutdown()
    if state.of_group or state.rendezvous_settings is None:
        _forget()
        if not _is_of_launcher(rank, size):
            if size == 1:
                rendezvous.alone()
            else:
                rendezvous.meet(store, rank, size)
    try:
        basics.init()
    finally:
        state.of_group = "due"


def _is_of_launcher(rank: int, size: int) -> bool:
    """Whether coveyrun has started these ranks as this job."""
    told = rendezvous.under_coveyrun(os.environ)
    return told and rendezvous.place_of(os.environ) == (rank, size)


def _forget() -> None:
    """There is no runtime: the next one may be of another job."""
    met, state.rendezvous_settings = state.rendezvous_settings or {}, None
    for name in ("shm_fd", "book_fd", "listen_fd"):
        descriptor = met.get(name, -1)
        if isinstance(descriptor, int) and descriptor >= 0:
            os.close(descriptor)
