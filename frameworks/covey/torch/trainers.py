"""Which trainer a method needs that does not wait for all ranks. Internal."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

import torch

from covey.errors import Unsupported
from covey.method import DELTA, FOREVER, MODEL, Plan, plan, text_at
from covey.torch.core_trainer import CoreTrainer
from covey.torch.layout import Named
from covey.torch.options import check_models, check_rounds
from covey.torch.trainer_handle import Parts

_OF_DELTAS = (torch.float32, torch.float64)  # OuterModel of core/train has arithmetic for them.


def check_options(optimizer: Any, plan: Plan) -> None:
    """Raises Unsupported (a ValueError) for an option that a part by ``plan`` does not go with, or
    a parameter of a dtype that it cannot exchange."""
    if plan.in_rounds and plan.payload == DELTA:
        _check_deltas(optimizer._covey_options, optimizer._covey_progress.named)
    elif plan.in_rounds and plan.payload == MODEL:
        check_models(optimizer._covey_options)
    elif plan.in_rounds:
        check_rounds(optimizer, optimizer._covey_options)


def _check_deltas(options: Dict[str, Any], named: Sequence[Named]) -> None:
    check_models(options)
    for name, parameter in named:
        if parameter.dtype not in _OF_DELTAS:
            raise Unsupported(
                f"{name}: changes of {parameter.dtype} cannot be added up, only those of float32 "
                "and float64: keep the parameters that are trained in float32"
            )


def trainer_of(optimizer: Any) -> CoreTrainer:
    """That of ``optimizer`` for the part that begins with its next step, which is in rounds. One of
    gradients is also for the rounds of models after it, so that no rank is waited for there."""
    progress = optimizer._covey_progress
    plan, at, group = progress.plan, progress.steps, optimizer._covey_plans[1].group
    if not plan.in_versions:
        word = "pairs" if plan.in_pairs else "deltas"
        parts = Parts(text_at(progress.method, at), 0, 0, word, False, True)
    elif plan.payload == MODEL:
        parts = Parts(progress.method, at, _end_of(plan), "models", False, True)
    else:
        after = plan_after(optimizer)
        end = _end_of(plan if after is None else after)
        parts = Parts(progress.method, at, end, "rounds", True, after is not None)
    trainer = CoreTrainer(optimizer, progress.named, group, parts)
    trainer.begin()
    return trainer


def _end_of(plan: Plan) -> int:
    return plan.until if plan.until < FOREVER else 0


def plan_after(optimizer: Any) -> Optional[Plan]:
    """That of the rounds of models that follow the rounds of gradients of the next step, if they
    do."""
    progress = optimizer._covey_progress
    if not progress.hands_over or progress.plan.payload == MODEL:
        return None  # After models the optimizer states differ, and meet.
    after = plan(progress.method, optimizer._covey_options["process_set"].id, progress.plan.until)
    return after if after.in_versions and after.payload == MODEL else None
