"""`covey bench model`: whole training steps, with and without communication.

Every contestant has its own copy of the model, all from one seed, and the same input. The extra
time of DDP and Covey over the step without communication is the part that the overlap could not
hide.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import covey.torch as hvd
from covey.bench.contest import Contest, Contestant, Row
from covey.bench.networks import CLASSES, WIDTH, SmallGpt, resnet18
from covey.bench.peers import Peers


class _Task(NamedTuple):
    """The model that is trained, and its data.

    Attributes:
        label: of the row.
        build: makes the network.
        inputs, wanted: one batch.
    """

    label: str
    build: Callable[[], nn.Module]
    inputs: torch.Tensor
    wanted: torch.Tensor


def _images(batch: int, pixels: int, width: int = WIDTH) -> _Task:
    thin = "" if width == WIDTH else f", 1/{WIDTH // width} as wide,"
    return _Task(
        f"ResNet-18{thin} step, {batch} images of {pixels} x {pixels} per rank",
        lambda: resnet18(width),
        torch.randn(batch, 3, pixels, pixels),
        torch.arange(batch) % CLASSES,
    )


def _text(batch: int, context: int) -> _Task:
    tokens = torch.randint(SmallGpt.VOCABULARY, (batch, context + 1))
    return _Task(
        f"small GPT step, {batch} texts of {context} tokens per rank",
        lambda: SmallGpt(context),
        tokens[:, :-1],
        tokens[:, 1:],
    )


def resnet_task(small: bool) -> _Task:
    return _images(2, 32, WIDTH // 8) if small else _images(8, 64)


def trained(model: nn.Module, task: _Task) -> Callable[[], torch.Tensor]:
    """A function that computes the loss of ``model``."""
    return lambda: functional.cross_entropy(model(task.inputs), task.wanted)


def _contestant(name: str, task: _Task) -> Contestant:
    torch.manual_seed(0)
    model = task.build()
    if name == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    if name == "covey":
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    loss = trained(model, task)

    def run(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

    return Contestant(name, run)


def bench(small: bool, peers: Peers, contest: Contest) -> List[Row]:
    """A row for each network: a step alone, with Covey, with DDP over Gloo."""
    names = ["alone", "covey"] + (["ddp"] if peers.has("ddp") else [])
    torch.manual_seed(1)
    rows = []
    for task in (resnet_task(small), _text(1, 8) if small else _text(4, 64)):
        elements = sum(parameter.numel() for parameter in task.build().parameters())
        contestants = [_contestant(name, task) for name in names]
        rows.append(contest.measure(task.label, 4 * elements, contestants, "covey"))
    return rows
