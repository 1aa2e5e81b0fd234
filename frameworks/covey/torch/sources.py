"""Where the models of the ranks can be read, whatever the method. Internal.

allreduce    replicas are equal: this rank's own
eager        replicas are equal at equal version: this rank's own; how far the others are, in a word
local, dpsgd each rank trains on memory that the others can read: a window
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
from covey.torch import window
from covey.torch.layout import BucketPlan, gradient_strides
from covey.torch.method_arrays import replicated

_PAUSE_S = 0.0002  # Before a model that is being changed is looked at again.
_SHARED = "ranks that share no memory cannot be read: all of them call consensus(exact=True)"
_BUSY = "its model was being changed whenever it was looked at (stopped, or slow, in its update)"
_AT_FINISH = "it has not taken up the mean that finish() has made"
_WHY = {
    window.NOTHING: "it has closed its optimizer, or taken none up yet",
    window.CHANGING: _BUSY,
    window.CLOSED: "it has closed its optimizer",
    window.LOST: "it has died, or left",
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
    known = replicated(optimizer._covey_rounds)
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
    if progress.window is None:  # All are equally far.
        return {rank: Seen(progress.version) for rank in group.ranks}
    found: Dict[int, Seen] = {}
    for rank in group.ranks:
        if rank == own:
            found[rank] = Seen(progress.version)
        elif progress.window.why[rank]:
            found[rank] = Seen(why=progress.window.why[rank])
        else:
            code, mark = progress.window.look(rank)
            found[rank] = Seen(mark.version, _WHY.get(code, ""))
    return found


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
    trainer, progress = optimizer._covey_rounds, optimizer._covey_progress
    seen_by, own = progress.window, state.require().rank
    if seen_by is None or all(seen_by.why.values()):
        raise Unsupported(_SHARED)
    # This rank has the mean of all that was made last. A rank that has taken part in it has it,
    # too, also where others see only the model it brought along.
    has_mean = not progress.is_parted and progress.version > 0

    def slot(rank: int, to: Sequence[torch.Tensor]) -> Optional[Seen]:
        own_step = trainer.look(own, to)[1] if has_mean else -1
        whole, step, passed_by = trainer.look(rank, to)
        if step == own_step or (step == 0 and rank == own):
            copy_own(plans, to)
            return Seen(step)
        if step == 0:
            return Seen(why="it has published no model yet")
        if passed_by:
            return Seen(why=f"an average of all has passed by its model of step {step}")
        return Seen(step) if whole else None

    def pair(rank: int, to: Sequence[torch.Tensor]) -> Optional[Seen]:
        mark = seen_by.look(rank)[1]
        if mark.is_behind(progress.begun):
            copy_own(plans, to)
            return Seen(mark.version, "" if has_mean else _AT_FINISH)
        return Seen(mark.version) if trainer.look(rank, to)[0] else None

    def place(rank: int, to: Sequence[torch.Tensor]) -> Optional[Seen]:
        code, mark = seen_by.look(rank, to, progress.begun)
        if code == window.WHOLE:
            return Seen(mark.version)
        return None if code == window.CHANGING else Seen(why=_WHY[code])

    if progress.plan.in_pairs:
        return pair
    return slot if progress.plan.in_rounds else place
