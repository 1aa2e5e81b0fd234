"""Which trainer a method needs that does not wait for all ranks. Internal."""

from __future__ import annotations

from typing import Any, Union

from covey.method import MODEL, Plan, text_at
from covey.torch import models, rounds
from covey.torch.models import ModelRounds
from covey.torch.pairs import PairTrainer
from covey.torch.rounds import RoundTrainer

Trainer = Union[RoundTrainer, ModelRounds, PairTrainer]


def check_options(optimizer: Any, plan: Plan) -> None:
    """Raises Unsupported (a ValueError) for an option that a part by ``plan`` does not go with."""
    if plan.in_rounds and plan.payload == MODEL:
        models.check_options(optimizer._covey_options)
    elif plan.in_rounds:
        rounds.check_options(optimizer, optimizer._covey_options)


def trainer_of(optimizer: Any) -> Trainer:
    """That of ``optimizer`` for the part that begins with its next step, which is in rounds."""
    progress = optimizer._covey_progress
    buckets, reduction = optimizer._covey_plans
    text = text_at(progress.method, progress.steps)
    if progress.plan.in_pairs:
        return PairTrainer(optimizer, progress.named, reduction.group, text)
    if progress.plan.payload == MODEL:
        return ModelRounds(optimizer, progress.named, reduction.group, text)
    return RoundTrainer(optimizer, buckets, reduction, text)
