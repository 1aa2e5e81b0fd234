"""`covey bench model`: whole training steps of a ResNet-18, with and without communication.

Every contestant has its own copy of the model, all from one seed, and the same input. What DDP and
Covey take longer than the step without communication is what the overlap could not hide.
"""

from __future__ import annotations

from typing import Any, List

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import covey.torch as hvd
from covey.bench.contest import Contest, Contestant, Row
from covey.bench.peers import Peers

CLASSES = 1000


class _Block(nn.Module):
    """Two 3x3 convolutions and the short cut around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if stride != 1:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.short = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.short(x))


def resnet18() -> nn.Module:
    """The network whose parameters `shapes.resnet18` lists."""
    blocks, inputs = [], 64
    for width in (64, 128, 256, 512):
        blocks += [_Block(inputs, width), _Block(width, width)]
        inputs = width
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, CLASSES),
    )


def _contestant(name: str, batch: int, pixels: int) -> Contestant:
    torch.manual_seed(0)
    model: nn.Module = resnet18()
    if name == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    if name == "covey":
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    inputs = torch.randn(batch, 3, pixels, pixels)
    wanted = torch.arange(batch) % CLASSES

    def run(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), wanted).backward()
            optimizer.step()

    return Contestant(name, run)


def bench(batch: int, pixels: int, peers: Peers, contest: Contest) -> List[Row]:
    """One row: a step alone, with Covey, with DDP over Gloo."""
    names = ["alone", "covey"] + (["ddp"] if peers.has("ddp") else [])
    contestants = [_contestant(name, batch, pixels) for name in names]
    label = f"ResNet-18 step, {batch} images of {pixels} x {pixels} per rank"
    return [contest.measure(label, 4 * 11_689_512, contestants, "covey")]
