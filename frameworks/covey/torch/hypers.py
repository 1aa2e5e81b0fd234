"""The numbers of an optimizer that travel with each of its steps. Internal."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch

# What travels with a step, where an optimizer has it.
_HYPERS = ("lr", "momentum", "betas", "weight_decay")


class Hypers:
    """The numbers of an optimizer that a version is applied with."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def _groups(self) -> List[Dict[str, Any]]:
        return self._optimizer.param_groups  # load_state_dict() makes a new list

    def read(self) -> Tuple[float, ...]:
        """All of them, group by group."""
        numbers: List[float] = []
        for group in self._groups:
            for name in _HYPERS:
                value = group.get(name)
                values = value if isinstance(value, (tuple, list)) else (value,)
                numbers += [float(v) for v in values if v is not None]
        return tuple(numbers)

    def write(self, numbers: Sequence[float]) -> None:
        """Puts back what ``read`` gave, on any rank. Where nothing differs, nothing is touched."""
        if tuple(numbers) == self.read():
            return
        left = iter(numbers)
        for group in self._groups:
            for name in _HYPERS:
                value = group.get(name)
                if value is None:
                    continue
                if isinstance(value, (tuple, list)):
                    group[name] = type(value)(next(left) for _ in value)
                elif isinstance(value, torch.Tensor):
                    value.fill_(next(left))
                else:
                    group[name] = next(left)
