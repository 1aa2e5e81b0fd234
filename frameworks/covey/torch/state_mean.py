"""What optimizers keep beside the model, averaged over the ranks for a checkpoint. Internal."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from covey.errors import Unsupported
from covey.group import Group
from covey.names import next_prefix
from covey.objects import allgather_object
from covey.reduce_op import Average, Max
from covey.torch.layout import Named
from covey.torch.ops import allreduce


def average_state(
    optimizer: torch.optim.Optimizer,
    named: Sequence[Named],
    group: Group,
    prefix: str = "",
) -> None:
    """The optimizer's state of each parameter becomes the same on all members, which all call it.

    Tensors become their mean (a member without one counts as zeros), counts of steps and other
    numbers their maximum. Other state, such as the history of LBFGS, is dropped with all that
    belongs to its parameter. ``prefix``: of the names of the operations; empty: a new one.

    Raises:
        Unsupported: (a ValueError) names a tensor of a dtype that cannot be sent.
    """
    kept = [_kinds(optimizer.state.get(parameter, {})) for _, parameter in named]
    prefix = prefix or next_prefix("state", group.ranks)
    everyone = allgather_object(kept, f"{prefix}.kinds", group)
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
    values = [agree(*each) for each in wanted]
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
