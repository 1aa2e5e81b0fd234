"""Training whose result says what went into it, for the tests of methods that do not wait for all:
gradients are whole numbers that differ by rank and step."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Optional

import torch

import covey.torch as hvd

WIDTH = 7


def digest(parameters: Any) -> str:
    return hashlib.blake2b(
        b"".join(p.detach().numpy().tobytes() for p in parameters), digest_size=8
    ).hexdigest()


def watch(optimizer: Any, parameters: List[torch.Tensor]) -> Dict[int, str]:
    """From now on: the parameters' hash by version."""
    seen: Dict[int, str] = {0: digest(parameters)}

    def hook(*_: Any) -> None:
        seen[optimizer.version + 1] = digest(parameters)

    optimizer.register_step_post_hook(hook)
    return seen


def gradient_of(rank: int, step: int) -> torch.Tensor:
    return torch.arange(WIDTH, dtype=torch.float64) % 3 + (step * 5 + rank * 3) % 8


class Trainer:
    """A parameter whose value is minus the sum of all gradients that went into it."""

    def __init__(
        self, method: str, model: Optional[torch.nn.Module] = None, op: int = hvd.Sum
    ) -> None:
        """``model``: to tell the optimizer; the parameter is its only one then. With Average it is
        the sum of all over their number, which is exact for powers of two."""
        self.parameter = torch.nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))
        if model is not None:
            model.register_parameter("parameter", self.parameter)
        sgd = torch.optim.SGD([self.parameter], lr=1.0)
        self.optimizer = hvd.DistributedOptimizer(sgd, op=op, model=model, method=method)
        self.seen = watch(self.optimizer, [self.parameter])
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self.optimizer.zero_grad()
        (self.parameter * gradient_of(hvd.rank(), self.steps)).sum().backward()
        self.optimizer.step()


def sum_of(steps: List[int]) -> List[float]:
    total = torch.zeros(WIDTH, dtype=torch.float64)
    for rank, count in enumerate(steps):
        for step in range(1, count + 1):
            total -= gradient_of(rank, step)
    return total.tolist()
