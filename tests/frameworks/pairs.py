"""What ranks do whose models are averaged in pairs, for the tests of those methods.

Gradients are whole numbers, so that the mean of all is known.
"""

from __future__ import annotations

from typing import List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from watched import Report
from whole_numbers import WIDTH, digest, gradient_of

import covey.torch as hvd


def learn(
    method: str, steps: List[int], dtype: torch.dtype = torch.float64
) -> Tuple[str, List[float], int]:
    """Plain SGD of this rank's own number of steps; the mean after finish(), twice."""
    parameter = torch.nn.Parameter(torch.zeros(WIDTH, dtype=dtype))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method=method)
    done = 0
    for _ in range(2):
        for _ in range(steps[hvd.rank()]):
            done += 1
            optimizer.zero_grad()
            (parameter * gradient_of(hvd.rank(), done).to(dtype)).sum().backward()
            optimizer.step()
        optimizer.finish()
        hvd.check_replicas({"parameter": parameter})
    stats = optimizer._covey_progress.step_stats
    return digest([parameter]), parameter.tolist(), stats.begun + stats.met


def mean_of(steps: List[int]) -> List[float]:
    """What two epochs of so many steps make of zeros, on average."""
    total = torch.zeros(WIDTH, dtype=torch.float64)
    for rank, count in enumerate(steps):
        for step in range(1, 2 * count + 1):
            total -= gradient_of(rank, step)
    return (total / len(steps)).tolist()


def train_until(folder: str, method: str) -> Tuple[str, str, int]:
    """The model's hash at the end, an error, steps."""
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
    report = Report(folder, hvd.rank())
    steps = 0
    while report.goes_on:
        optimizer.zero_grad()
        loss_of(net, batch_of(steps, hvd.rank())).backward()
        optimizer.step()
        steps += 1
        report.write(optimizer.version)
    optimizer.finish()
    return digest(net.parameters()), "", steps
