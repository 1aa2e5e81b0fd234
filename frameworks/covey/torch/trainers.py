"""Which trainer a method needs that does not wait for all ranks. Internal."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from covey.method import MODEL, goes_in_rounds, payload
from covey.torch.bucket import Reduction
from covey.torch.layout import BucketPlan, Named
from covey.torch.models import ModelRounds
from covey.torch.rounds import RoundTrainer

Trainer = Union[RoundTrainer, ModelRounds]


def trainer_of(
    optimizer: Any, named: Sequence[Named], plans: Sequence[BucketPlan], reduction: Reduction
) -> Optional[Trainer]:
    """That of ``optimizer``, by its method; None: it waits for all.

    Args:
        optimizer: a distributed one.
        named: the parameters that are trained.
        plans: their gradients in buckets.
        reduction: what becomes of gradients, and between whom.
    """
    method = optimizer._covey_progress.method
    if not goes_in_rounds(method, reduction.group.id):
        return None
    if payload(method, reduction.group.id, 0) == MODEL:
        return ModelRounds(optimizer, named, reduction.group, method)
    return RoundTrainer(optimizer, plans, reduction, method)
