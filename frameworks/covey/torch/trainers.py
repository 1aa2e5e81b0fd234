"""Which trainer a method needs that does not wait for all ranks. Internal."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Union

import torch

from covey.errors import Unsupported
from covey.method import DELTA, MODEL, Plan, plan, text_at
from covey.torch import models
from covey.torch.core_trainer import CoreTrainer
from covey.torch.layout import Named
from covey.torch.models import ModelRounds
from covey.torch.options import check_rounds
from covey.torch.rounds import RoundTrainer

_OF_DELTAS = (torch.float32, torch.float64)  # OuterModel of core/train has arithmetic for them.

Trainer = Union[RoundTrainer, ModelRounds, CoreTrainer]


def check_options(optimizer: Any, plan: Plan) -> None:
    """Raises Unsupported (a ValueError) for an option that a part by ``plan`` does not go with, or
    a parameter of a dtype that it cannot exchange."""
    if plan.in_rounds and plan.payload == DELTA:
        _check_deltas(optimizer._covey_options, optimizer._covey_progress.named)
    elif plan.in_rounds and plan.payload == MODEL:
        models.check_options(optimizer._covey_options)
    elif plan.in_rounds:
        check_rounds(optimizer, optimizer._covey_options)


def _check_deltas(options: Dict[str, Any], named: Sequence[Named]) -> None:
    models.check_options(options)
    for name, parameter in named:
        if parameter.dtype not in _OF_DELTAS:
            raise Unsupported(
                f"{name}: changes of {parameter.dtype} cannot be added up, only those of float32 "
                "and float64: keep the parameters that are trained in float32"
            )


def trainer_of(optimizer: Any) -> Trainer:
    """That of ``optimizer`` for the part that begins with its next step, which is in rounds."""
    progress = optimizer._covey_progress
    buckets, reduction = optimizer._covey_plans
    text = text_at(progress.method, progress.steps)
    if progress.plan.in_pairs or progress.plan.payload == DELTA:
        word = "pairs" if progress.plan.in_pairs else "deltas"
        return CoreTrainer(optimizer, progress.named, reduction.group, text, word)
    if progress.plan.payload == MODEL:
        trainer = _models_of(optimizer, progress.steps)
        trainer.begin()
        return trainer
    return RoundTrainer(optimizer, buckets, reduction)


def trainer_after(optimizer: Any) -> Optional[ModelRounds]:
    """That of the part after the one that begins with the next step, made ahead, so that no rank is
    waited for there. None: it has to be made there."""
    progress = optimizer._covey_progress
    if not progress.hands_over or progress.plan.payload == MODEL:
        return None  # After models the optimizer states differ, and meet.
    after = plan(progress.method, optimizer._covey_options["process_set"].id, progress.plan.until)
    if after.in_pairs or not after.in_rounds or after.payload != MODEL:
        return None
    return _models_of(optimizer, progress.plan.until)


def _models_of(optimizer: Any, at: int) -> ModelRounds:
    progress = optimizer._covey_progress
    group = optimizer._covey_plans[1].group
    return ModelRounds(optimizer, progress.named, group, at)
