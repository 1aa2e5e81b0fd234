"""The slow reference of methods that average models: all ranks in one process."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List

import torch
from nets import batch_of, loss_of, whole_batch

import covey.torch as hvd

OPTIMIZERS: Dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    # With momentum and a rate of 0.05 one network of 300 diverges within 9 steps, to NaN.
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01),
    # With torch's eps, of 1e-8, the rounding of a gradient near 0 is a step.
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
}


def do_step(net: torch.nn.Module, optimizer: Any, batch: Any) -> None:
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()


def average(nets: List[torch.nn.Module]) -> None:
    """The slow reference: sums in rank order, then a division."""
    with torch.no_grad():
        for same in zip(*(net.parameters() for net in nets)):
            total = torch.zeros_like(same[0])
            for parameter in same:
                total += parameter
            for parameter in same:
                parameter.copy_(total / len(nets))


class Reference:
    """All ranks in one process, each with a network and an optimizer of its own."""

    def __init__(self, net: torch.nn.Module, kind: str) -> None:
        self.nets = [copy.deepcopy(net) for _ in range(hvd.size())]
        self.optimizers = [OPTIMIZERS[kind](list(net.parameters())) for net in self.nets]

    def local_step(self, step: int) -> None:
        for rank, (net, optimizer) in enumerate(zip(self.nets, self.optimizers)):
            do_step(net, optimizer, batch_of(step, rank))

    def shared_step(self, step: int) -> None:
        for net, optimizer in zip(self.nets, self.optimizers):
            do_step(net, optimizer, whole_batch(step))


def agree(net: torch.nn.Module, other: torch.nn.Module, what: Any) -> None:
    for (name, actual), wanted in zip(net.named_parameters(), other.parameters()):
        torch.testing.assert_close(
            actual, wanted, rtol=1e-5, atol=1e-5, msg=lambda text: f"{what} {name}: {text}"
        )
