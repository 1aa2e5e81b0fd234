"""The arrays that a method keeps beside the model and replicates on all ranks, such as an outer
momentum. Internal."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional

import torch

from covey.torch.core_trainer import CoreTrainer

_ANCHOR = "anchor"  # The replicated model, before the method's own arrays.
_PREFIX = "method "  # Of their names in a checkpoint.


def _bytes_at(address: int, length: int) -> torch.Tensor:
    memory: Any = (ctypes.c_char * length).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8)


def replicated(trainer: Optional[CoreTrainer]) -> Optional[List[torch.Tensor]]:
    """By plan, the model that all ranks have at this version; None: their own, or none yet."""
    if trainer is None or not trainer.position.has_state:
        return None
    at = {name: address for name, address, _ in trainer.arrays()}[_ANCHOR]
    addresses = trainer.spans(of_model=True)
    first = min(addresses)
    return [
        _bytes_at(at + address - first, plan.length * plan.dtype.itemsize).view(plan.dtype)
        for plan, address in zip(trainer.plans, addresses)
    ]


def state(trainer: Optional[CoreTrainer]) -> Dict[str, torch.Tensor]:
    """By name copies of the arrays beside that model, as bytes."""
    arrays = [] if trainer is None else trainer.arrays()
    return {name: _bytes_at(*place).clone() for name, *place in arrays if name != _ANCHOR}


def put_state(trainer: CoreTrainer, arrays: Mapping[str, torch.Tensor]) -> None:
    """``state`` of a trainer that this one goes on from."""
    for name, *place in trainer.arrays():
        if name in arrays:
            _bytes_at(*place).copy_(arrays[name])


def kept_by_method(optimizer: Any) -> Dict[str, torch.Tensor]:
    """As ``state``, by their names in a checkpoint; empty by most methods."""
    return {_PREFIX + name: it for name, it in state(optimizer._covey_rounds).items()}


def put_back_to_method(optimizer: Any, named: Mapping[str, torch.Tensor]) -> None:
    """As ``kept_by_method`` has it, among others."""
    arrays = {n[len(_PREFIX) :]: it for n, it in named.items() if n.startswith(_PREFIX)}
    if optimizer._covey_rounds is not None:
        put_state(optimizer._covey_rounds, arrays)
