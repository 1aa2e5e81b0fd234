"""The parts of a training: one method after another, as ``then=`` and ``warmup_steps`` say.
Internal.

A part ends after the same ``step()`` on every rank. Then replicas are equal, and so is what the
optimizers keep: rounds are finished, models averaged (the core plans the last step so), and momenta
and the like averaged too, without which equal replicas would drift apart from the next update on.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

import torch

from covey.card import show
from covey.errors import Unsupported
from covey.group import Group
from covey.method import GRADIENTS, plans, scale_at, text_at
from covey.objects import allgather_object
from covey.reduce_op import Average, Max
from covey.torch.layout import Named
from covey.torch.handover import hand_over, is_over, release_warmup
from covey.torch.look import is_on, refuse
from covey.torch.ops import allreduce
from covey.torch.reducer import Reducer, next_prefix
from covey.torch.trainers import check_options, trainer_after, trainer_of


def check_parts(optimizer: Any) -> None:
    """Refuses now what a part that is yet to come could not do.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) too few ranks; an option that rounds refuse; a
            parameter that they cannot read.
    """
    progress = optimizer._covey_progress
    afar = [(name, it.device) for name, it in progress.named if not it.is_cpu]
    for begin, plan in plans(progress.method, optimizer._covey_options["process_set"].id):
        check_options(optimizer, plan)
        if afar and (plan.in_rounds or plan.in_pairs):
            raise Unsupported(
                f"{afar[0][0]} is on {afar[0][1]}, and method {text_at(progress.method, begin)} "
                "needs parameters on the CPU; without max_wait, allreduce and local take those on "
                "CUDA"
            )


def show_card(optimizer: Any) -> None:
    """Says on rank 0 by what method training begins."""
    group = optimizer._covey_options["process_set"]
    size = sum(p.numel() * p.element_size() for _, p in optimizer._covey_progress.named)
    show(optimizer._covey_progress.method, group.size(), size, group.id)


def lr_scale(optimizer: Any) -> float:
    """By what a learning rate for one rank is to be multiplied, for the step that comes."""
    progress, options = optimizer._covey_progress, optimizer._covey_options
    if not progress.is_shared or (
        progress.plan.payload == GRADIENTS and options["op"] != Average
    ):
        return 1.0
    return scale_at(progress.method, progress.steps, options["process_set"].size())


def begin_part(optimizer: Any) -> None:
    """Makes ready for the next step. All ranks call it at the same one."""
    if optimizer._covey_progress.plan.in_rounds and optimizer._covey_rounds is None:
        optimizer._covey_rounds = trainer_of(optimizer)
        optimizer._covey_next = trainer_after(optimizer)
    optimizer._covey_progress.open_window()
    _turn(optimizer)


def end_step(optimizer: Any) -> None:
    """After each ``step()``: looks what the next one is.

    Raises:
        NotFinite: this rank's gradients were unfit: it took part in the step without them.
        Timeout: a part ends, and ranks are missing for ``max_wait``: ``finish()`` waits on, to be
            called until it returns; then the next part has begun.
    """
    progress = optimizer._covey_progress
    why, progress.unfit = progress.unfit, ""
    progress.steps += 1
    progress.tally.end_step()
    release_warmup(optimizer)
    if is_over(optimizer):
        _end_part(optimizer)
    elif not progress.plan.in_rounds:
        progress.move(progress.steps)
        _turn(optimizer)
    refuse(why)


def move_to(optimizer: Any, steps: int) -> None:
    """Training is taken up again where ``steps`` were done, with equal replicas. On all ranks."""
    progress = optimizer._covey_progress
    before, warms_up = text_at(progress.method, progress.steps), progress.plan.warmup > 0
    progress.move(steps)
    is_another = text_at(progress.method, steps) != before
    if not progress.plan.in_rounds or is_another or warms_up or progress.plan.warmup > 0:
        leave_rounds(optimizer)
    if progress.is_shared:
        begin_part(optimizer)


def _turn(optimizer: Any) -> None:
    """Reduces gradients from now on, or does not, as the step that comes has it."""
    wanted = optimizer._covey_progress.reduces
    if wanted and optimizer._covey_reducer is None:
        passes = optimizer.backward_passes_per_step
        densify = optimizer._covey_options["sparse_as_dense"]
        optimizer._covey_reducer = Reducer(*optimizer._covey_plans, passes, densify)
    if optimizer._covey_reducer is not None:
        optimizer._covey_reducer.active = wanted
        optimizer._covey_reducer.look_at = optimizer._covey_progress.steps if is_on() else None


def _end_part(optimizer: Any, is_finished: bool = False) -> None:
    progress = optimizer._covey_progress
    if optimizer._covey_next is not None:
        return hand_over(optimizer)
    leave_rounds(optimizer, is_finished)
    if progress.hands_over:  # Who was late has done fewer steps.
        progress.steps = progress.version
    if progress.differs:
        group = optimizer._covey_options["process_set"]
        average_state(optimizer, progress.named, group)
        progress.differs = False
    progress.move(progress.steps)
    begin_part(optimizer)


def finish_rounds(optimizer: Any) -> None:
    """``finish()`` of a method in rounds. Who is in a warm-up yet that others have left follows."""
    while True:
        optimizer._covey_rounds.finish()
        if not is_over(optimizer):
            break
        goes_on = optimizer._covey_next is not None
        _end_part(optimizer, is_finished=True)
        if not goes_on:  # All are at the begin of the next part.
            break
    release_warmup(optimizer, at_once=True)


def leave_rounds(optimizer: Any, is_finished: bool = False) -> None:
    """Ends the rounds there are, which may be finished already. On all ranks.

    Raises:
        Timeout: ranks are missing for ``max_wait``; called again it goes on.
    """
    if optimizer._covey_rounds is not None:
        if not is_finished:
            optimizer._covey_rounds.finish()
        optimizer._covey_rounds.close()
        optimizer._covey_rounds = None
        optimizer._covey_progress.is_parted = False
    if optimizer._covey_next is not None:
        optimizer._covey_next.close()
        optimizer._covey_next = None
    release_warmup(optimizer, at_once=True)


def average_state(
    optimizer: torch.optim.Optimizer, named: Sequence[Named], group: Group, prefix: str = ""
) -> None:
    """What the optimizer keeps per parameter becomes the same on all members, who all call it.

    Tensors become their mean (a member without one counts as zeros), counts of steps and other
    numbers their maximum. What is neither, such as the history of LBFGS, is dropped with all that
    belongs to its parameter. ``prefix``: of the names of the operations; empty: a new one.
    """
    kept = [_kinds(optimizer.state.get(parameter, {})) for _, parameter in named]
    prefix = prefix or next_prefix("state", group.ranks)
    everyone = allgather_object(kept, f"{prefix}.kinds", group)
    for number, (_, parameter) in enumerate(named):
        kinds: Dict[str, _Kind] = {}
        for member in everyone:
            kinds.update(member[number])
        if any(kind.is_other for kind in kinds.values()):
            optimizer.state.pop(parameter, None)
            continue
        state = optimizer.state[parameter] if kinds else {}
        for key, kind in sorted(kinds.items()):
            where = parameter.device if kind.is_beside else torch.device("cpu")
            name = f"{prefix}.{number}.{key}"
            state[key] = _agree(state.get(key), key, kind, name, group, where)


class _Kind(NamedTuple):
    """What somebody keeps: a tensor; a number when there is no dtype; or something else."""

    shape: Tuple[int, ...] = ()
    dtype: Optional[torch.dtype] = None
    is_beside: bool = False  # A tensor on the device of its parameter, else on the CPU.
    is_other: bool = False


def _kinds(state: Dict[str, Any]) -> Dict[str, _Kind]:
    """The kinds of what is not None."""

    def kind(value: Any) -> _Kind:
        if isinstance(value, torch.Tensor):
            return _Kind(tuple(value.shape), value.dtype, not value.is_cpu)
        return _Kind(is_other=not isinstance(value, (int, float)))

    return {key: kind(value) for key, value in state.items() if value is not None}


def _agree(
    mine: Any, key: str, kind: _Kind, name: str, group: Group, where: torch.device
) -> Any:
    if kind.dtype is not None and key != "step":
        value = mine
        if mine is None:
            value = torch.zeros(kind.shape, dtype=kind.dtype, device=where)
        return allreduce(value.detach(), name=name, op=Average, process_set=group)
    value = torch.as_tensor(0.0 if mine is None else mine, dtype=torch.float64, device="cpu")
    greatest = allreduce(value, name=name, op=Max, process_set=group)
    if kind.dtype is not None:
        return greatest.to(kind.dtype).to(where)
    return float(greatest) if mine is None else type(mine)(greatest)
