"""A model whose trained numbers are all equal, so that one that was read half written shows."""

from __future__ import annotations

from typing import Any, Tuple

import torch

import covey.torch as hvd


class Net(torch.nn.Module):
    """Numbers of two dtypes that are all equal, and some that are not trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = torch.nn.Parameter(torch.zeros(width, dtype=torch.float64))
        self.small = torch.nn.Parameter(torch.zeros(3, 2))
        self.frozen = torch.nn.Parameter(torch.full((2,), 7.0), requires_grad=False)


def make(method: str, width: int = 50) -> Tuple[Net, Any]:
    net = Net(width)
    sgd = torch.optim.SGD([net.wide, net.small], lr=1.0)
    return net, hvd.DistributedOptimizer(sgd, model=net, method=method)


def step(net: Net, optimizer: Any, by: float) -> None:
    """Adds ``by`` to all numbers, by this rank."""
    optimizer.zero_grad()
    (-by * (net.wide.sum() + net.small.sum())).backward()
    optimizer.step()
