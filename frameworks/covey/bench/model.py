"""`covey bench model`: whole training steps, with and without communication.

Every contestant has its own copy of the model, all from one seed, and the same input. What a step
takes beyond the one without communication, by blocks of both that follow each other, is what the
overlap could not hide. Beside it stand an allreduce of as many bytes where nothing is copied, and
a step with a barrier and no bytes at all: the time for which equal steps wait for each other.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, List, NamedTuple

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import covey
import covey.torch as hvd
from covey.bench.contest import Contest, Contestant, Row
from covey.bench.networks import CLASSES, WIDTH, SmallGpt, resnet18
from covey.bench.peers import Peers
from covey.bench.ratio import median_difference

_METHODS = ("allreduce", "eager")
_ALONE, _BARRIER, _IN_ARENA = "alone", "alone, barrier", "in the arena"
_BLOCK = 10  # Steps of a contestant in each of its turns,
_TURNS = 6  # of which there are so many for one of other benches.


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
    if name in _METHODS:
        named = model.named_parameters()
        optimizer = hvd.DistributedOptimizer(optimizer, named, model=model, method=name)

    loss = trained(model, task)

    def run(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            loss().backward()
            if name == _BARRIER:
                covey.barrier()
            optimizer.step()

    return Contestant(name, run)


def _exchange(elements: int) -> Contestant:
    """An in-place allreduce of as many float32: the least that an exchange of them costs."""
    flat = covey.arena_empty((elements,), torch.float32).zero_()

    def run(count: int) -> None:
        for _ in range(count):
            hvd.allreduce_(flat, name="bench.in_the_arena")

    return Contestant(_IN_ARENA, run)


def _note(row: Row, name: str) -> str:
    """The cost of a step beyond the same step without communication, in the same rounds."""
    more = median_difference(row.seconds[name], row.seconds[_ALONE])
    share, least = row.median(_ALONE), row.median(_IN_ARENA)
    return (
        f"  {name}: {more.value * 1e3:+.2f} ms a step beyond {_ALONE} [{more.low * 1e3:+.2f} to "
        f"{more.high * 1e3:+.2f}], {1 + more.value / share:.3f} x its step, "
        f"{more.value / least:.2f} x an allreduce {_IN_ARENA}, which is {least / share:.1%} of it"
    )


def bench(small: bool, peers: Peers, contest: Contest) -> List[Row]:
    """A row for each network: a step of all ranks at once without communication, by methods of
    Covey, and with DDP over Gloo, in blocks that take turns."""
    names = [_ALONE, _BARRIER, *_METHODS] + (["ddp"] if peers.has("ddp") else [])
    rounds = contest.effort.rounds * (1 if small else _TURNS)
    blocks = contest.with_effort(dataclasses.replace(contest.effort, rounds=rounds, samples=1))
    torch.manual_seed(1)
    rows = []
    for task in (resnet_task(small), _text(1, 8) if small else _text(4, 64)):
        elements = sum(parameter.numel() for parameter in task.build().parameters())
        contestants = [*(_contestant(name, task) for name in names), _exchange(elements)]
        row = blocks.measure_blocks(
            task.label, 4 * elements, contestants, _METHODS[0], 1 if small else _BLOCK
        )
        row.notes = [_note(row, name) for name in names[1:]]
        rows.append(row)
    return rows
