"""The job of a default process group, ``dist.init_process_group``. Internal.

Each default group begins a runtime of its own: its ranks, and how many they are, may be others than
those of the group before it, as after a failure, and a rank cannot know whether all others were in
that one. A runtime that the program began itself, by ``covey.init()``, stays.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from covey import basics, elastic_job, launched_by, rendezvous, store_generation
from covey.state import state


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
