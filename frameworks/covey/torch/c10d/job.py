"""The job of a default process group, ``dist.init_process_group``. Internal.

Each default group begins a runtime of its own: its ranks, and how many they are, may be others than
those of the group before it, as after a failure, and a rank cannot know whether all others were in
that one. A runtime that the program began itself, by ``covey.init()``, stays.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from covey import basics, rendezvous
from covey.errors import Timeout
from covey.state import state


def begin(store: Any, rank: int, size: int) -> None:
    """The runtime in which the process is ``rank`` of ``size``: that of ``covey.init()``, the
    launcher's, or one that these ranks make by the store. Afterwards ``state.of_group`` is "due",
    but for the first, and ``state.group_keys`` is of this default group.

    Args:
        store: of these ranks; None: they are the launcher's.

    Raises as ``covey.init()``.
    """
    state.groups[size] += 1  # On all ranks of a runtime alike.
    state.group_keys = f"covey/here/{size}/{state.groups[size]}"
    if basics.is_initialized():
        if state.of_group != "made":
            return
        basics.shutdown()
    if state.of_group or state.rendezvous_settings is None:
        _forget()
        if store is not None:
            _meet(store, rank, size)
    try:
        basics.init()
    finally:
        state.of_group = "due"


def _meet(store: Any, rank: int, size: int) -> None:
    # The N-th group of this size, of this store, in which a process is `rank`: on all ranks alike.
    turn = store.add(f"covey/turn/{size}/{rank}", 1)
    state.group_keys = f"covey/{size}/{turn}"
    keys = dist.PrefixStore(state.group_keys, store)
    if rendezvous.under_coveyrun(os.environ) and _are_of_launcher(keys, rank, size):
        return
    if size == 1:
        rendezvous.alone()
    else:
        rendezvous.meet(keys, rank, size)


def _are_of_launcher(keys: Any, rank: int, size: int) -> bool:
    """Whether each of these ranks has the place that coveyrun gave it: then its job is theirs.

    Raises:
        Timeout: not all came within COVEY_START_TIMEOUT; the message names those that are missing.
    """
    from covey.launch.rendezvous_handler import start_timeout_s

    is_mine = rendezvous.place_of(os.environ) == (rank, size)
    keys.set(f"place/{rank}", "launcher" if is_mine else "other")
    places = [f"place/{other}" for other in range(size)]
    limit_s = start_timeout_s()
    try:
        keys.wait(places, timedelta(seconds=limit_s))
    except RuntimeError as error:  # torch's, of a store
        late = [str(other) for other in range(size) if not keys.check([places[other]])]
        raise Timeout(
            f"rank {rank} of a process group of {size}: ranks {', '.join(late)} did not call "
            f"init_process_group within {limit_s:g} s (COVEY_START_TIMEOUT): "
            f"{str(error).splitlines()[0]}"
        ) from error
    return all(keys.get(place) == b"launcher" for place in places)


def _forget() -> None:
    """There is no runtime: the next one may be of another job."""
    met, state.rendezvous_settings = state.rendezvous_settings or {}, None
    for name in ("shm_fd", "book_fd", "listen_fd"):
        descriptor = met.get(name, -1)
        if isinstance(descriptor, int) and descriptor >= 0:
            os.close(descriptor)
