"""Where the models of the ranks can be read, whatever the method. Internal.

allreduce    replicas are equal: this rank's own
eager        replicas are equal at equal version: this rank's own; how far the others are, in a word
local, dpsgd each rank trains on memory that the others can read
wagma        what each rank has published last, in its slot
adpsgd       what each rank has handed in last, with what others have made of it since
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch

from covey.errors import Unsupported
from covey.method import MODEL
from covey.state import state
from covey.torch.layout import BucketPlan, gradient_strides
from covey.torch.method_arrays import replicated
from covey.torch.trainer_handle import CHANGING, CLOSED, LOST, NOTHING, WHOLE

_PAUSE_S = 0.0002  # Before a model that is being changed is looked at again.
_SHARED = "ranks that share no memory cannot be read: all of them call consensus(exact=True)"
_ELSEWHERE = (
    "its model lies where others cannot read it: on a device, or beyond COVEY_ARENA_BYTES"
)
_BUSY = "its model was being changed whenever it was looked at (stopped, or slow, in its update)"
_AT_FINISH = "it has not taken up the mean that finish() has made"
_WHY = {
    CHANGING: _BUSY,
    CLOSED: "it has closed its optimizer",
    LOST: "it has died, or left",
}


class Seen(NamedTuple):
    """One rank's model was read, of that version; or, if ``why`` says so, not."""

    version: int = 0
    why: str = ""


Look = Callable[[int, Sequence[torch.Tensor]], Optional[Seen]]
"""Copies a rank's model to tensors; None: it was changed meanwhile."""


def is_replicated(optimizer: Any) -> bool:
    """Whether all ranks have the same model at the same version."""
    progress = optimizer._covey_progress
    if not progress.is_shared or progress.reduces:
        return True
    return progress.plan.in_rounds and progress.plan.payload != MODEL


def copy_replicated(
    optimizer: Any, plans: Sequence[BucketPlan], to: Sequence[torch.Tensor]
) -> None:
    """The model that all ranks have at this version: the parameters, or what they depart from."""
    known = replicated(optimizer)
    if known is None:
        return copy_own(plans, to)
    for source, flat in zip(known, to):
        flat.copy_(source)


def copy_own(plans: Sequence[BucketPlan], to: Sequence[torch.Tensor]) -> None:
    """The parameters as they are."""
    for plan, flat in zip(plans, to):
        for slot in plan.slots:
            view_of(flat, slot).copy_(slot.parameter.data)


def view_of(flat: torch.Tensor, slot: Any) -> torch.Tensor:
    """The place of a parameter in a tensor that is laid out like its plan."""
    return flat.as_strided(slot.parameter.shape, gradient_strides(slot.parameter), slot.offset)


def versions_of(optimizer: Any) -> Dict[int, Seen]:
    """By rank: how far it is."""
    progress = optimizer._covey_progress
    group = optimizer._covey_options["process_set"]
    own = state.require().rank
    if not progress.is_shared:
        return {own: Seen(progress.version)}
    if progress.reduces:  # All are equally far.
        return {rank: Seen(progress.version) for rank in group.ranks}
    found: Dict[int, Seen] = {}
    for rank in group.ranks:
        found[rank] = Seen(progress.version) if rank == own else _version_of(optimizer, rank)
    return found


def _version_of(optimizer: Any, rank: int) -> Seen:
    try:
        seen = optimizer._covey_trainer.look(rank)
    except Unsupported as reason:
        return Seen(why=str(reason))
    return Seen(seen.version, "" if seen.state == CHANGING else _WHY.get(seen.state, ""))


def read(
    optimizer: Any, rank: int, plans: Sequence[BucketPlan], to: List[torch.Tensor], timeout: float
) -> Seen:
    """Copies the model of ``rank`` to tensors laid out like the whole plans. Waits for no rank, but
    looks again, for so many seconds at most, while it is being changed.

    Raises:
        Unsupported: (a ValueError) the ranks share no memory.
    """
    look = _look_of(optimizer, plans)
    deadline = time.monotonic() + timeout
    while True:
        seen = look(rank, to)
        if seen is not None:
            return seen
        if time.monotonic() > deadline:
            return Seen(why=_BUSY)
        time.sleep(_PAUSE_S)


def _look_of(optimizer: Any, plans: Sequence[BucketPlan]) -> Look:
    trainer, progress = optimizer._covey_trainer, optimizer._covey_progress
    own = state.require().rank
    try:
        trainer.look(own)
    except Unsupported:
        raise Unsupported(_SHARED) from None
    # This rank has the mean of all that was made last. A rank that has taken part in it has it,
    # too, also where others see only the model it brought along.
    has_mean = not progress.is_parted and progress.version > 0

    def slot(rank: int, to: Sequence[torch.Tensor]) -> Optional[Seen]:
        own_step = trainer.look(own, to).step if has_mean else -1
        seen = trainer.look(rank, to)
        if seen.step == own_step or (seen.step == 0 and rank == own):
            copy_own(plans, to)
            return Seen(seen.step)
        if seen.step == 0:
            return Seen(why="it has published no model yet")
        if seen.is_superseded:
            return Seen(why=f"an average of all has passed by its model of step {seen.step}")
        return Seen(seen.step) if seen.state == WHOLE else None

    def pair(rank: int, to: Sequence[torch.Tensor]) -> Optional[Seen]:
        seen = trainer.look(rank, to)
        if seen.is_superseded:
            copy_own(plans, to)
            return Seen(seen.version, "" if has_mean else _AT_FINISH)
        return Seen(seen.version) if seen.state == WHOLE else None

    def place(rank: int, to: Sequence[torch.Tensor]) -> Optional[Seen]:
        seen = trainer.look(rank, to)
        if seen.state == WHOLE:
            return Seen(seen.version)
        if seen.state == NOTHING and seen.version > 0:  # Else it has not begun yet.
            return Seen(why=_ELSEWHERE)
        return Seen(why=_WHY[seen.state]) if seen.state in (CLOSED, LOST) else None

    if progress.plan.in_pairs:
        return pair
    return slot if progress.plan.in_rounds else place
