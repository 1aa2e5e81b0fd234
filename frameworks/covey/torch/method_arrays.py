"""The arrays that a method keeps beside the model and replicates on all ranks, such as an outer
momentum. Internal."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional

import torch

from covey.method import DELTA
from covey.torch.core_trainer import CoreTrainer
from covey.torch.layout import BucketPlan

_ANCHOR = "anchor"  # The replicated model, before the method's own arrays.
_PREFIX = "method "  # Of their names in a checkpoint.


def _bytes_at(address: int, length: int) -> torch.Tensor:
    memory: Any = (ctypes.c_char * length).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8)


def numbers_at(address: int, plan: BucketPlan) -> torch.Tensor:
    """[plan.length] Those of a plan in memory of the core."""
    return _bytes_at(address, plan.length * plan.dtype.itemsize).view(plan.dtype)


def replicated(optimizer: Any) -> Optional[List[torch.Tensor]]:
    """By plan, the model that all ranks have at this version; None: their own, or none yet."""
    trainer: Optional[CoreTrainer] = optimizer._covey_trainer
    if not _has_arrays(optimizer) or trainer is None or not trainer.position.has_state:
        return None
    at = {name: address for name, address, _ in trainer.arrays()}[_ANCHOR]
    addresses = trainer.spans(of_model=True)
    first = min(addresses)
    return [
        numbers_at(at + address - first, plan)
        for plan, address in zip(trainer.plans, addresses)
    ]


def _has_arrays(optimizer: Any) -> bool:
    return bool(optimizer._covey_progress.plan.payload == DELTA)


def state(optimizer: Any) -> Dict[str, torch.Tensor]:
    """By name copies of the arrays beside that model, as bytes."""
    arrays = optimizer._covey_trainer.arrays() if _has_arrays(optimizer) else []
    return {name: _bytes_at(*place).clone() for name, *place in arrays if name != _ANCHOR}


def put_state(optimizer: Any, arrays: Mapping[str, torch.Tensor]) -> None:
    """``state`` of a trainer that this one goes on from."""
    for name, *place in optimizer._covey_trainer.arrays() if _has_arrays(optimizer) else ():
        if name in arrays:
            _bytes_at(*place).copy_(arrays[name])


def kept_by_method(optimizer: Any) -> Dict[str, torch.Tensor]:
    """As ``state``, by their names in a checkpoint; empty by most methods."""
    return {_PREFIX + name: it for name, it in state(optimizer).items()}


def put_back_to_method(optimizer: Any, named: Mapping[str, torch.Tensor]) -> None:
    """As ``kept_by_method`` has it, among others."""
    arrays = {n[len(_PREFIX) :]: it for n, it in named.items() if n.startswith(_PREFIX)}
    put_state(optimizer, arrays)
