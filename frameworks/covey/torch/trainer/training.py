"""The training of one optimizer, from step to step. Internal.

The core's trainer knows where it is, and goes by itself from one part to the next: one method
after another, as ``then=`` and ``warmup_steps`` say. This module adds torch's part: buckets that
are reduced while backward goes on, and gradients before the first step, as in Horovod.
"""

from __future__ import annotations

from typing import Any

import torch

from covey.errors import NotFinite
from covey.method import plans
from covey.method_summary import announce
from covey.reduce_op import Adasum
from covey.state import state
from covey.torch.equal_start import compare_start
from covey.torch.look import is_on
from covey.torch.method_state import give_back
from covey.torch.options import check_plan
from covey.torch.reducer import Reducer
from covey.torch.trainer.adasum_trainer import AdasumTrainer
from covey.torch.trainer.core_trainer import CoreTrainer


def begin_training(optimizer: Any) -> None:
    """Makes ready for the first step, or for the next one with other parameters. All ranks call it.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) too few ranks; an option that does not go with a
            part that is yet to come.
    """
    progress, group = optimizer._covey_progress, optimizer._covey_options["process_set"]
    compare_start(optimizer, progress.named)
    for _, plan in plans(progress.method, group.id):
        check_plan(optimizer, plan)
    size_bytes = sum(p.numel() * p.element_size() for _, p in progress.named)
    announce(progress.method, group, size_bytes)
    open_trainer(optimizer)
    fill_gradients(optimizer)


def open_trainer(optimizer: Any) -> None:
    """Makes ready for the next step, which is that of ``progress``. All ranks call it."""
    progress = optimizer._covey_progress
    if progress.is_shared:
        options = optimizer._covey_options
        kind = AdasumTrainer if options["op"] == Adasum else CoreTrainer
        optimizer._covey_trainer = kind(optimizer, progress.named, options["process_set"])
        optimizer._covey_trainer.begin()
    turn(optimizer)


def close_trainer(optimizer: Any) -> None:
    """Its exchanges end as they are; ``open_trainer`` begins others."""
    if optimizer._covey_trainer is not None:
        optimizer._covey_trainer.close()
    optimizer._covey_trainer = None


def end_step(optimizer: Any) -> None:
    """After each ``step()``: makes ready for the next one.

    Raises:
        NotFinite: this rank's gradients were unfit: it took part in the step without them.
    """
    progress = optimizer._covey_progress
    why, progress.unfit = progress.unfit, ""
    if optimizer._covey_trainer is None:
        progress.move(progress.steps + 1)
    progress.step_stats.end_step()
    turn(optimizer)
    if why:
        rank = state.require().rank
        raise NotFinite(f"rank {rank} has {why}", rank)


def move_to(optimizer: Any, steps: int) -> None:
    """Training is taken up again where ``steps`` were done, with equal replicas. On all ranks.

    Raises:
        Timeout: ranks are missing for ``max_wait``; called again it goes on.
    """
    progress, trainer = optimizer._covey_progress, optimizer._covey_trainer
    progress.refuse_mixed("version")
    if trainer is not None and trainer.can_move:
        trainer.move_to(steps)
    elif trainer is not None:
        leave_training(optimizer)
        progress.move(steps)
        return open_trainer(optimizer)
    else:
        progress.move(steps)
    turn(optimizer)


def leave_training(optimizer: Any) -> None:
    """Its trainer is closed, when all that counts in it has come to all. On all ranks.

    Raises:
        Timeout: ranks are missing for ``max_wait``; called again it goes on.
    """
    trainer = optimizer._covey_trainer
    optimizer._covey_progress.refuse_mixed("other parameters than at first")
    if trainer is not None:
        if optimizer._covey_progress.plan.in_rounds:
            optimizer._covey_progress.check_unchanged()
            trainer.finish()
        give_back(optimizer)
    close_trainer(optimizer)


def turn(optimizer: Any) -> None:
    """Reduces gradients from now on, or does not, as the step that comes has it."""
    wanted = optimizer._covey_progress.reduces
    if wanted and optimizer._covey_reducer is None:
        passes = optimizer.backward_passes_per_step
        takes_dense = not isinstance(optimizer, torch.optim.SparseAdam)
        densify = optimizer._covey_options["sparse_as_dense"] and takes_dense
        optimizer._covey_reducer = Reducer(*optimizer._covey_plans, passes, densify)
    if optimizer._covey_reducer is not None:
        optimizer._covey_reducer.active = wanted
        optimizer._covey_reducer.step = optimizer._covey_progress.steps
        optimizer._covey_reducer.look_at = optimizer._covey_progress.steps if is_on() else None


def fill_gradients(optimizer: Any) -> None:
    """Before the first step parameters that have no gradient have zeros, as in Horovod."""
    progress = optimizer._covey_progress
    if progress.steps > 0:
        return
    if optimizer._covey_reducer is not None:
        for bucket in optimizer._covey_reducer.buckets:
            bucket.fill()
        return
    filled = optimizer._covey_filled = []
    for _, parameter in progress.named:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            filled.append((parameter, parameter.grad, parameter.grad._version))


def empty_gradients(optimizer: Any) -> None:
    """The first step begins: zeros of ``fill_gradients`` that no backward pass has added to are no
    gradient."""
    for parameter, zeros, version in vars(optimizer).pop("_covey_filled", ()):
        if parameter.grad is zeros and zeros._version == version and not zeros.any():
            parameter.grad = None
