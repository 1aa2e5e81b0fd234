"""`covey bench methods`: the time of a step by method when no rank is late.

The step of an optimizer over the 161 gradients of a ResNet-50, where backward computes nothing, and
that of a ResNet-18, beside the same step of a rank alone. The exchange is the difference.
"""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

import torch
from torch import nn

import covey.torch as hvd
from covey.bench.contest import Contest, Contestant, Row, net_of
from covey.bench.model import resnet_task, trained
from covey.bench.step import NET, NoCompute, ordinary_allreduce
from covey.method import methods

ALONE = "alone"
# Methods that could go on without all wait for all too: their cost is the price of not having to.
_TEXTS = ("allreduce", "eager:admit=all", "wagma:admit=all", "wagma", "dpsgd", "adpsgd", "swarm")
_PAIRS = ("adpsgd", "swarm")
_ORDINARY = "ordinary tensors"


def _texts() -> List[str]:
    there = {method["name"] for method in methods()}
    return [text for text in _TEXTS if text.partition(":")[0] in there]


def _stepping(
    model: nn.Module, text: str, loss: Callable[[], torch.Tensor], used: List[Any]
) -> Contestant:
    """`used` gets its optimizer, if that has to finish."""
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.0)
    if text != ALONE:
        optimizer = hvd.DistributedOptimizer(optimizer, model=model, method=text)
        used.append(optimizer)

    def run(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

    return Contestant(text, run)


def _finish(used: List[Any]) -> None:
    for optimizer in used:
        optimizer.finish()


def _bare(shapes: Sequence[Tuple[int, ...]], contest: Contest) -> Row:
    used: List[Any] = []
    contestants = [Contestant(_ORDINARY, ordinary_allreduce(shapes))]
    for text in [ALONE, *_texts()]:
        model = NoCompute(shapes)
        contestants.append(_stepping(model, text, model, used))
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    label = f"{len(shapes)} gradients, {elements:,} float32: the optimizer's step, no backward"
    row = contest.measure(label, 4 * elements, contestants, _ORDINARY)
    _finish(used)
    for text in _texts():
        row.seconds[text + NET] = net_of(row, text, ALONE)
        row.bases[text + NET] = _ORDINARY
        del row.bases[text]
    del row.bases[ALONE]
    return row


def _real(small: bool, contest: Contest) -> Row:
    task = resnet_task(small)
    contestants: List[Contestant] = []
    used: List[Any] = []
    for text in [ALONE, *_texts()]:
        model = task.build()
        contestants.append(_stepping(model, text, trained(model, task), used))
    elements = sum(parameter.numel() for parameter in task.build().parameters())
    row = contest.measure(task.label, 4 * elements, contestants, "allreduce")
    _finish(used)
    for text in _PAIRS:  # They are not to keep a rank at all.
        if text in row.bases:
            row.bases[text] = ALONE
    return row


def bench(shapes: Sequence[Tuple[int, ...]], small: bool, contest: Contest) -> List[Row]:
    """Two rows; in the first each method net of the step alone, beside an allreduce of ordinary
    tensors; in the second beside allreduce's step, those in pairs beside the step alone."""
    return [_bare(shapes, contest), _real(small, contest)]
