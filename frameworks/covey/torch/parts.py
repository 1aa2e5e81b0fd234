"""The parts of a training: one method after another, as ``then=`` and ``warmup_steps`` say.
Internal.

A part ends after the same ``step()`` on every rank. Then replicas are equal, and so is what the
optimizers keep: models are averaged (the core plans the last step so; pairs are finished), and
momenta and the like averaged too, without which equal replicas would drift apart from the next
update on. While a rank is missing there, rounds go on. From rounds of gradients to those of models
the core's trainer goes by itself, and waits for no rank.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from covey.errors import Aborted, Timeout, Unsupported
from covey.group import Group
from covey.method import GRADIENTS, outlives, plans, scale_at, text_at
from covey.method_summary import show
from covey.names import next_prefix
from covey.objects import allgather_object
from covey.reduce_op import Average, Max
from covey.step_stats import note_outlives
from covey.torch.crossing import Crossing, limit_of
from covey.torch.ending import say_alone
from covey.torch.equal_start import compare_start
from covey.torch.layout import Named
from covey.torch.look import is_on, refuse
from covey.torch.ops import allreduce
from covey.torch.reducer import Reducer
from covey.torch.trainers import check_options, trainer_of


def begin_training(optimizer: Any) -> None:
    """Makes ready for the first step, or for the next one with other parameters. All ranks call it.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) as ``check_parts``.
    """
    compare_start(optimizer, optimizer._covey_progress.named)
    check_parts(optimizer)
    show_method_summary(optimizer)
    begin_part(optimizer)
    fill_gradients(optimizer)


def check_parts(optimizer: Any) -> None:
    """Refuses now what a part that is yet to come could not do.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) too few ranks; an option that rounds refuse.
    """
    progress = optimizer._covey_progress
    for _, plan in plans(progress.method, optimizer._covey_options["process_set"].id):
        check_options(optimizer, plan)


def show_method_summary(optimizer: Any) -> None:
    """Says on rank 0 by what method training begins; to the launcher, whether a rank may die."""
    group = optimizer._covey_options["process_set"]
    if group.size() > 1 and outlives(optimizer._covey_progress.method, group.id):
        note_outlives(optimizer._covey_progress.method)
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
    progress = optimizer._covey_progress
    if progress.plan.in_rounds and optimizer._covey_rounds is None:
        optimizer._covey_rounds = trainer_of(optimizer)
    progress.open_board()
    progress.open_window()
    _turn(optimizer)


def end_step(optimizer: Any) -> None:
    """After each ``step()``: looks what the next one is.

    Raises:
        NotFinite: this rank's gradients were unfit: it took part in the step without them.
        Timeout: a part ends, and ranks are missing for ``max_wait``: the next ``step()``, or
            ``finish()``, waits on before anything else; then the next part has begun.
    """
    progress = optimizer._covey_progress
    why, progress.unfit = progress.unfit, ""
    progress.steps += 1
    progress.step_stats.end_step()
    _follow(optimizer)
    if _is_over(optimizer):
        _end_part(optimizer)
    elif not progress.plan.in_rounds:
        progress.move(progress.steps)
        _turn(optimizer)
    refuse(why)


def move_to(optimizer: Any, steps: int) -> None:
    """Training is taken up again where ``steps`` were done, with equal replicas. On all ranks."""
    progress = optimizer._covey_progress
    progress.settle_mixing()
    before, warms_up = text_at(progress.method, progress.steps), progress.plan.warmup > 0
    progress.move(steps)
    is_another = text_at(progress.method, steps) != before
    warms_up |= progress.plan.warmup > 0
    is_kept = progress.plan.in_rounds and not progress.plan.in_versions
    if not is_kept or is_another or warms_up:
        leave_rounds(optimizer)
    if progress.is_shared:
        begin_part(optimizer)


def _turn(optimizer: Any) -> None:
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
        return optimizer._covey_reducer.fill()
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


def _follow(optimizer: Any) -> None:
    """After a step, or finish(): its trainer may have gone on with the next of its parts."""
    progress, rounds = optimizer._covey_progress, optimizer._covey_rounds
    if rounds is not None and rounds.takes_turn():
        progress.move(rounds.position.step)


def _is_over(optimizer: Any) -> bool:
    """Whether the part of the training that the last step belonged to has ended for this rank, and
    the next one is to be made. While a rank is missing there rounds go on."""
    progress = optimizer._covey_progress
    return bool(optimizer._covey_rounds.is_over if progress.hands_over else progress.is_over)


def _pace_of(optimizer: Any) -> int:
    """So many nanoseconds a step of this rank's own takes, as its rounds have it; 0: unknown."""
    plan = optimizer._covey_progress.plan
    if optimizer._covey_rounds is None or not plan.in_versions:
        return 0
    return int(optimizer._covey_rounds.position.step_ns)


def _keep_pace(optimizer: Any, step_ns: int) -> None:
    """It holds in the rounds that have begun: so they wait no longer at first than later."""
    plan = optimizer._covey_progress.plan
    if optimizer._covey_rounds is not None and plan.in_versions:
        optimizer._covey_rounds.keep_pace(step_ns)


def _end_part(optimizer: Any) -> None:
    progress = optimizer._covey_progress
    until = progress.plan.until
    method, after = text_at(progress.method, until - 1), text_at(progress.method, until)
    limit_s = limit_of(progress.plan) if progress.plan.in_rounds else None
    what = f"the end of the steps by {method} before {after}"
    progress.crossing = Crossing(what, limit_s, progress.board)
    progress.crossing.step_ns = _pace_of(optimizer)
    cross(optimizer)


def cross(optimizer: Any) -> bool:
    """Goes on to the next part where this rank is between two, and says whether it was.

    Raises:
        Timeout: ranks are missing for ``max_wait``; called again it waits on.
    """
    progress = optimizer._covey_progress
    if progress.crossing is None:
        return False
    progress.crossing.begin()
    if not progress.crossing.has_left:
        _leave(optimizer)
        progress.crossing.has_left = True
    if progress.differs:
        group, name = optimizer._covey_options["process_set"], progress.name_of("state")
        average_state(optimizer, progress.named, group, name, progress.together)
        progress.differs = False
    progress.move(progress.steps)
    begin_part(optimizer)
    _keep_pace(optimizer, progress.crossing.step_ns)
    progress.crossing = None
    return True


def _leave(optimizer: Any) -> None:
    """Leaves the rounds that have ended, or pairs, which have to meet for that."""
    progress = optimizer._covey_progress
    if progress.hands_over:  # A late rank has done fewer steps.
        progress.steps = progress.version
    elif optimizer._covey_rounds is not None:
        optimizer._covey_rounds.finish()
    _close(optimizer)


def settle_step(optimizer: Any) -> None:
    """Goes on with a step whose neighbors were waited for in vain, up to its update.

    Raises:
        Timeout: they are missing still.
    """
    progress = optimizer._covey_progress
    progress.settle_mixing()
    if progress.has_updated:
        progress.after_update()
        end_step(optimizer)


def finish_part(optimizer: Any, strict: bool) -> None:
    """``finish()``. Between two parts it goes on to the next one: there all are equal."""
    if cross(optimizer):
        return
    if optimizer._covey_rounds is None:
        return _finish_without(optimizer, strict)
    settle_step(optimizer)
    _finish_rounds(optimizer, strict)


def _finish_without(optimizer: Any, strict: bool) -> None:
    """``finish()`` of a method without rounds. With a ``max_wait``, and without ``strict``, a rank
    keeps its own model when that time is over, or when the other ranks have left."""
    progress = optimizer._covey_progress
    try:
        settle_step(optimizer)
        progress.finish()
    except (Timeout, Aborted) as missing:
        if strict or progress._limit() is None:
            raise
        say_alone(missing)


def _finish_rounds(optimizer: Any, strict: bool) -> None:
    optimizer._covey_rounds.finish(strict)
    _follow(optimizer)
    if _is_over(optimizer):
        _end_part(optimizer)  # All are at the begin of the next part.


def leave_rounds(optimizer: Any) -> None:
    """Ends the rounds there are. On all ranks.

    Raises:
        Timeout: ranks are missing for ``max_wait``; called again it goes on.
    """
    cross(optimizer)
    optimizer._covey_progress.settle_mixing()
    if optimizer._covey_rounds is not None:
        optimizer._covey_progress.unchanged.check(True)
        optimizer._covey_rounds.finish()
    _close(optimizer)


def _close(optimizer: Any) -> None:
    if optimizer._covey_rounds is not None:
        optimizer._covey_rounds.close()
        optimizer._covey_rounds = None
        optimizer._covey_progress.is_parted = False


def _at_once(_: str, call: Callable[[], Any]) -> Any:
    return call()


def average_state(
    optimizer: torch.optim.Optimizer,
    named: Sequence[Named],
    group: Group,
    prefix: str = "",
    together: Callable[[str, Callable[[], Any]], Any] = _at_once,
) -> None:
    """The optimizer's state of each parameter becomes the same on all members, which all call it.

    Tensors become their mean (a member without one counts as zeros), counts of steps and other
    numbers their maximum. Other state, such as the history of LBFGS, is dropped with all that
    belongs to its parameter. ``prefix``: of the names of the operations; empty: a new one.
    ``together(what, call)``: how ``call()`` is done, which waits for all; it changes nothing.

    Raises:
        Unsupported: (a ValueError) names a tensor of a dtype that cannot be sent.
    """
    kept = [_kinds(optimizer.state.get(parameter, {})) for _, parameter in named]
    prefix = prefix or next_prefix("state", group.ranks)
    name = f"{prefix}.kinds"
    everyone = together(name, lambda: allgather_object(kept, name, group))
    kinds: List[Dict[str, _Kind]] = [{} for _ in named]
    for member in everyone:
        for all_of, some in zip(kinds, member):
            all_of.update(some)

    def agree(number: int, key: str) -> Any:
        parameter, kind = named[number][1], kinds[number][key]
        where = parameter.device if kind.is_beside else torch.device("cpu")
        mine = optimizer.state.get(parameter, {}).get(key)
        try:
            return _agree(mine, key, kind, f"{prefix}.{number}.{key}", group, where)
        except Unsupported as refusal:
            what = f"{key} that the optimizer keeps for {named[number][0]}"
            raise Unsupported(f"{what}: {refusal}") from None

    wanted = [
        (number, key)
        for number, all_of in enumerate(kinds)
        if not any(kind.is_other for kind in all_of.values())
        for key in sorted(all_of)
    ]
    values = together(f"{prefix}.values", lambda: [agree(*each) for each in wanted])
    for (number, key), value in zip(wanted, values):
        optimizer.state[named[number][1]][key] = value
    for all_of, (_, parameter) in zip(kinds, named):
        if any(kind.is_other for kind in all_of.values()):
            optimizer.state.pop(parameter, None)


class _Kind(NamedTuple):
    """The kind of an entry of an optimizer's state: a tensor; a number when there is no dtype; or
    something else."""

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
