"""The numbers of an optimizer that travel with each of its steps. Internal."""

from __future__ import annotations

import numbers
from typing import Any, Iterator, List, Sequence, Tuple

import torch

# Values that travel with a step, where an optimizer has them: all that torch's own take for a
# parameter group. Not whatever number lies there: some optimizers keep their state among them.
_HYPERS = (
    "lr", "momentum", "betas", "weight_decay", "dampening", "eps", "alpha", "rho", "lr_decay",
    "lambd", "t0", "etas", "step_sizes", "momentum_decay", "beta2_decay",
)


def read_hypers(optimizer: torch.optim.Optimizer) -> Tuple[float, ...]:
    """All of them, group by group."""
    found: List[float] = []
    for group in optimizer.param_groups:
        for name in _HYPERS:
            value = group.get(name)
            if value is not None:
                values = value if isinstance(value, (tuple, list)) else (value,)
                found += [float(v) for v in values if _is_number(v)]
    return tuple(found)


def write_hypers(optimizer: torch.optim.Optimizer, wanted: Sequence[float]) -> None:
    """Puts back what ``read_hypers`` gave, on any rank. Where nothing differs, nothing is
    touched."""
    if tuple(wanted) == read_hypers(optimizer):
        return
    left = iter(wanted)
    for group in optimizer.param_groups:
        for name in _HYPERS:
            value = group.get(name)
            if isinstance(value, (tuple, list)):
                group[name] = type(value)([_next_as(v, left) for v in value])
            elif value is not None:
                group[name] = _next_as(value, left)


def _is_number(value: Any) -> bool:
    if type(value) in (float, int):  # It is read at every step.
        return True
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _next_as(value: Any, left: Iterator[float]) -> Any:
    """The next one, with the type of ``value``; a value that is no number stays."""
    if not _is_number(value):
        return value
    if isinstance(value, torch.Tensor):
        return value.fill_(next(left))
    number = next(left)
    return int(number) if isinstance(value, int) and number.is_integer() else number
