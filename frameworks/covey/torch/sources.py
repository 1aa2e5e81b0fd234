"""This rank's model, and those of the others as it sees them. Internal."""

from __future__ import annotations

from typing import Any, Dict, Sequence

import torch

from covey.method import MODEL
from covey.seen_models import Seen, SeenModels, version_of
from covey.state import state
from covey.torch.layout import BucketPlan, gradient_strides
from covey.torch.method_arrays import replicated


def is_replicated(optimizer: Any) -> bool:
    """Whether all ranks have the same model at the same version."""
    progress = optimizer._covey_progress
    if not progress.is_shared or progress.reduces or progress.adds_updates:
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
    is_known = progress.reduces or progress.adds_updates  # All are equally far.
    return {
        rank: (
            Seen(progress.version)
            if is_known or rank == own
            else version_of(optimizer._covey_trainer, rank)
        )
        for rank in group.ranks
    }


def seen_models(
    optimizer: Any, plans: Sequence[BucketPlan], to: Sequence[torch.Tensor]
) -> SeenModels:
    """The models of its ranks, which are read to tensors laid out like the whole plans."""
    progress = optimizer._covey_progress
    return SeenModels(
        optimizer._covey_trainer,
        state.require().rank,
        progress.plan,
        not progress.is_parted and progress.version > 0,
        lambda: copy_own(plans, to),
    )
